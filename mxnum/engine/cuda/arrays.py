"""Making, viewing and copying arrays of the libraries whose arrays live on a GPU.

Results are of the library that the input is of. A library is never imported here: whoever passed one of its arrays has
done that.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mxnum.engine.cuda import driver
from mxnum.memory.device import CUPY, TORCH, DeviceArray, contiguous_strides, described
from mxnum.memory.dtypes import Array


def empty(like: DeviceArray, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
    """A new contiguous array beside another one: of its library, on its GPU, for use on its stream."""
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
    """An array of the view's library that shows what the view does."""
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
    """A copy in host memory. The host waits for the array's stream."""
    if view.size == 0:
        return np.empty(view.shape, view.dtype)
    if view.is_contiguous:
        width = view.dtype.itemsize
        flat = driver.copied_to_host(view.pointer, view.size, f"u{width}", view.owner, view.stream)
        return flat.view(view.dtype).reshape(view.shape)
    # All memory from the first to the last element; a view of it on the host.
    memory, first = driver.memory(view, signed=False)
    whole = driver.copied_to_host(
        view.pointer - first * view.dtype.itemsize, memory.size, f"u{view.dtype.itemsize}", view.owner, view.stream
    )
    steps = tuple(stride * view.dtype.itemsize for stride in view.strides)
    strided = np.lib.stride_tricks.as_strided(whole[first:], view.shape, steps)
    return np.ascontiguousarray(strided).view(view.dtype)


def scalar(like: DeviceArray, value: int) -> DeviceArray:
    """One int64 in device memory."""
    from mxnum.engine.cuda.kernels import fill

    made = empty(like, (1,), np.int64)
    driver.launch(fill(), 1, like.stream, 1, driver.memory(made, signed=True)[0], value)
    return made


def read_scalar(view: DeviceArray) -> int:
    """Its value; the host waits."""
    return int(to_host(view)[0])


def steps_of(view: DeviceArray) -> tuple[int, ...]:
    """Strides of a view, those of a contiguous array for axes that have one element or none."""
    return contiguous_strides(view.shape) if view.size == 0 else view.strides
