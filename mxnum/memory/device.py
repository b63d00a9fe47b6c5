"""Describe arrays on a GPU (library, memory and strides) without loading any package.

Arrays on a GPU are CuPy arrays, numba device arrays, CUDA tensors of torch, and all objects with a
``__cuda_array_interface__``. No function of this module reads or writes the memory of an array.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.memory.tensors import dtype_of, is_tensor, readable

#: The libraries whose arrays are returned as results. For inputs from any other library, results
#: are numba device arrays.
TORCH, CUPY, NUMBA = "torch", "cupy", "numba"


@dataclass(frozen=True, eq=False)
class DeviceArray:
    """A strided view of GPU memory, which the engine accepts in place of a numpy array."""

    #: The caller's array, which keeps the memory alive. A view of a view has the same owner.
    owner: Any
    library: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    #: Strides in elements.
    strides: tuple[int, ...]
    #: Address of the element at index 0, ..., 0.
    pointer: int
    writable: bool = True
    #: A CUDA stream handle, as in the CUDA array interface; None if there is no stream to wait for.
    stream: int | None = None
    #: Number of the GPU; None for the current GPU.
    gpu: int | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """True if the elements lie in memory in C order, without gaps."""
        return self.size == 0 or self.strides_matter == contiguous_strides(self.shape)

    @property
    def strides_matter(self) -> tuple[int, ...]:
        """The strides; an axis of length 1 gets the stride that it has in a contiguous array."""
        usual = contiguous_strides(self.shape)
        return tuple(u if n == 1 else s for n, s, u in zip(self.shape, self.strides, usual, strict=True))

    def _viewed(self, strided: np.ndarray[Any, Any]) -> DeviceArray:
        address = strided.__array_interface__["data"][0] - _ORIGIN.__array_interface__["data"][0]
        strides = tuple(stride // self.dtype.itemsize for stride in strided.strides)
        return replace(self, shape=strided.shape, strides=strides, pointer=self.pointer + address)

    def _stand_in(self) -> np.ndarray[Any, Any]:
        """Return a numpy array with the same shape and strides, whose memory must not be read."""
        steps = tuple(stride * self.dtype.itemsize for stride in self.strides)
        bytes_ = np.dtype(f"V{self.dtype.itemsize}")
        return np.lib.stride_tricks.as_strided(_ORIGIN.view(bytes_), self.shape, steps)

    def __getitem__(self, key: Any) -> DeviceArray:
        """Return a view by numpy's basic indexing.

        A key that has an integer for every axis must end in "...", as in ``x[0, 0, ...]``.
        """
        return self._viewed(self._stand_in()[key])

    def transpose(self, order: tuple[int, ...]) -> DeviceArray:
        """Return a view with the axes in another order."""
        return self._viewed(self._stand_in().transpose(order))

    def swapaxes(self, first: int, second: int) -> DeviceArray:
        """Return a view with two axes exchanged."""
        return self._viewed(self._stand_in().swapaxes(first, second))

    def reshaped(self, shape: tuple[int, ...]) -> DeviceArray:
        """Return a contiguous array with another shape."""
        assert self.is_contiguous
        assert math.prod(shape) == self.size
        return replace(self, shape=shape, strides=contiguous_strides(shape))


#: The memory of the arrays that `_stand_in` returns. It is as large as one element of the widest
#: type, and is never read.
_ORIGIN = np.zeros(1, "V8")


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of C order, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def on_device(value: Any) -> bool:
    """Return True if an array is on a GPU."""
    if isinstance(value, (np.ndarray, list, tuple, float, int, np.generic)):
        return False
    if isinstance(value, DeviceArray):
        return True
    if is_tensor(value):  # hasattr may raise an error for a tensor
        return bool(value.is_cuda)
    # Arrays of numba's CUDA simulator have only numba's attribute, `__cuda_ndarray__`.
    return hasattr(value, "__cuda_array_interface__") or getattr(value, "__cuda_ndarray__", False) is True


def place_of(value: Any) -> str:
    """Return "on a GPU" or "in host memory", for messages about an array."""
    return "on a GPU" if on_device(value) else "in host memory"


def together(arguments: Iterable[tuple[str, Any]]) -> bool:
    """Return True if the arrays are on a GPU. An argument that is None is ignored.

    Raise an error unless all arrays are in host memory, or all on the same GPU.
    """
    given = [(name, value) for name, value in arguments if value is not None]
    first, leader = given[0]
    for name, value in given[1:]:
        if on_device(value) != on_device(leader):
            raise errors.mixed_places(name, place_of(value), first, place_of(leader))
        if isinstance(value, DeviceArray) and isinstance(leader, DeviceArray) and value.gpu != leader.gpu:
            raise errors.mixed_places(name, f"on GPU {value.gpu}", first, f"on GPU {leader.gpu}")
    return on_device(leader)


def described(argument: str, value: Any) -> DeviceArray:
    """Return the `DeviceArray` that describes an array on a GPU."""
    if isinstance(value, DeviceArray):
        return value
    if is_tensor(value):
        return _of_torch(argument, value)
    # A device array of numba's CUDA simulator wraps host memory.
    fake = getattr(value, "_ary", None)
    interface = value.__cuda_array_interface__ if fake is None else fake.__array_interface__
    dtype = np.dtype(getattr(value, "dtype", interface["typestr"]))
    errors.require(interface.get("mask") is None, argument, "without a mask", "a masked array")
    shape, steps = tuple(interface["shape"]), interface.get("strides")
    strides = contiguous_strides(shape) if steps is None else _in_elements(argument, steps, dtype.itemsize)
    owner = getattr(value, "device", None)
    library = CUPY if type(value).__module__.split(".")[0] == "cupy" else NUMBA
    return DeviceArray(
        owner=value,
        library=library,
        dtype=dtype,
        shape=shape,
        strides=strides,
        pointer=interface["data"][0] or 0,
        writable=not interface["data"][1],
        stream=interface.get("stream"),
        gpu=owner.id if library == CUPY and owner is not None else None,
    )


def _in_elements(argument: str, steps: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    errors.require(
        all(step % itemsize == 0 for step in steps), argument, f"strided by multiples of {itemsize} bytes", steps
    )
    return tuple(step // itemsize for step in steps)


def _of_torch(argument: str, tensor: Any) -> DeviceArray:
    readable(argument, tensor)
    return DeviceArray(
        owner=tensor,
        library=TORCH,
        dtype=dtype_of(tensor),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        pointer=tensor.data_ptr(),
        # In the CUDA array interface the default stream has the number 1.
        stream=sys.modules["torch"].cuda.current_stream(tensor.device).cuda_stream or 1,
        gpu=tensor.device.index,
    )
