"""Functions that make, view and copy arrays in GPU memory, of torch, CuPy and other libraries.

A result is an array of the input's library. This module never imports torch or CuPy: a caller that
passes an array of one of these libraries has already imported the library.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mxnum.engine.cuda import driver
from mxnum.memory.device import CUPY, TORCH, DeviceArray, contiguous_strides, described
from mxnum.memory.dtypes import Array


def empty(like: DeviceArray, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
    """Return a new contiguous array of the same library, GPU and stream as `like`."""
    dtype = np.dtype(dtype)
    if like.library == TORCH:
        torch = sys.modules["torch"]
        made = torch.empty(shape, dtype=getattr(torch, dtype.name), device=like.owner.device)
    elif like.library == CUPY:
        made = sys.modules["cupy"].empty(shape, dtype)
    else:
        made = driver.empty(shape, dtype, like.stream)
    return described("out", made)


def owner_of(view: DeviceArray) -> Any:
    """Return an array of the view's library that shares the memory and strides of the view."""
    if view.library == TORCH:
        torch = sys.modules["torch"]
        base = view.owner
        offset = base.storage_offset() + (view.pointer - base.data_ptr()) // view.dtype.itemsize
        return torch.as_strided(base, view.shape, view.strides, offset)
    if view.library == CUPY:
        cupy = sys.modules["cupy"]
        steps = tuple(stride * view.dtype.itemsize for stride in view.strides)
        memory = view.owner.data + (view.pointer - view.owner.data.ptr)
        return cupy.ndarray(view.shape, view.dtype, memory, steps)
    return driver.view(view.owner, view)


def to_host(view: DeviceArray) -> Array:
    """Return a copy of a device array in host memory.

    The call waits until the work on the array's stream is done.
    """
    if view.size == 0:
        return np.empty(view.shape, view.dtype)
    if view.is_contiguous:
        width = view.dtype.itemsize
        flat = driver.copied_to_host(view.pointer, view.size, f"u{width}", view.owner, view.stream)
        return flat.view(view.dtype).reshape(view.shape)
    # The array is not contiguous: copy its memory from the first to the last element, and apply the
    # strides on the host.
    memory, first = driver.memory(view, signed=False)
    whole = driver.copied_to_host(
        view.pointer - first * view.dtype.itemsize, memory.size, f"u{view.dtype.itemsize}", view.owner, view.stream
    )
    steps = tuple(stride * view.dtype.itemsize for stride in view.strides)
    strided = np.lib.stride_tricks.as_strided(whole[first:], view.shape, steps)
    return np.ascontiguousarray(strided).view(view.dtype)


def scalar(like: DeviceArray, value: int) -> DeviceArray:
    """Return a device array of one int64 with the given value, on the GPU of `like`."""
    from mxnum.engine.cuda.kernels import fill

    made = empty(like, (1,), np.int64)
    driver.launch(fill(), 1, like.stream, 1, driver.memory(made, signed=True)[0], value)
    return made


def read_scalar(view: DeviceArray) -> int:
    """Return the only element of a device array, after waiting for the array's stream."""
    return int(to_host(view)[0])


def steps_of(view: DeviceArray) -> tuple[int, ...]:
    """Return the strides of a view; an empty view gets the strides of a contiguous array."""
    return contiguous_strides(view.shape) if view.size == 0 else view.strides
