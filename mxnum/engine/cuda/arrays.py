"""Makes, views and copies arrays in GPU memory, for each library that has such arrays.

Results are arrays of the input's library. This module never imports a library: a caller with one of
its arrays has imported it already.
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
    """Return a copy in host memory. The host waits for the array's stream."""
    if view.size == 0:
        return np.empty(view.shape, view.dtype)
    if view.is_contiguous:
        width = view.dtype.itemsize
        flat = driver.copied_to_host(view.pointer, view.size, f"u{width}", view.owner, view.stream)
        return flat.view(view.dtype).reshape(view.shape)
    # Copy all memory from the first to the last element, and view it on the host.
    memory, first = driver.memory(view, signed=False)
    whole = driver.copied_to_host(
        view.pointer - first * view.dtype.itemsize, memory.size, f"u{view.dtype.itemsize}", view.owner, view.stream
    )
    steps = tuple(stride * view.dtype.itemsize for stride in view.strides)
    strided = np.lib.stride_tricks.as_strided(whole[first:], view.shape, steps)
    return np.ascontiguousarray(strided).view(view.dtype)


def scalar(like: DeviceArray, value: int) -> DeviceArray:
    """Return an array with one int64 in device memory."""
    from mxnum.engine.cuda.kernels import fill

    made = empty(like, (1,), np.int64)
    driver.launch(fill(), 1, like.stream, 1, driver.memory(made, signed=True)[0], value)
    return made


def read_scalar(view: DeviceArray) -> int:
    """Return the value of an array with one element. The host waits."""
    return int(to_host(view)[0])


def steps_of(view: DeviceArray) -> tuple[int, ...]:
    """Return the strides of a view, or those of a contiguous array if the view has no elements."""
    return contiguous_strides(view.shape) if view.size == 0 else view.strides
