"""View the parts of MX arrays, in host memory or on a GPU, and unpack codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mxnum.engine.dispatch import engine as dispatch_engine
from mxnum.memory.device import described, on_device
from mxnum.memory.dtypes import Array, as_array
from mxnum.memory.tensors import answer, in_kind


def along(keys: tuple[Any, ...], lengths: tuple[int, ...]) -> tuple[Any, ...]:
    """Return index keys for an array whose shape is `lengths`.

    The result is `keys`, except that the key for an axis of length 1 selects the axis's only item.
    """
    return tuple(
        key if length > 1 else slice(None) if isinstance(key, slice) else 0
        for key, length in zip(keys, lengths, strict=True)
    )


def leaves_alike(keys: tuple[Any, ...], shape: tuple[int, ...], lengths: Any) -> bool:
    """Return True if any selected element shares its tensor scale with an unselected element.

    `keys` select elements of an array with the given shape. `lengths` is the shape of the array of
    tensor scales.
    """
    return any(
        alike == 1 and (len(range(length)[key]) if isinstance(key, slice) else 1) < length
        for key, length, alike in zip(keys, shape, tuple(lengths) or (1,) * len(shape), strict=True)
    )


def viewed(array: Any, view: Callable[[Any], Any]) -> Any:
    """Return `view(array)` as an array of the library of `array`, or None if `array` is None."""
    if array is None or isinstance(array, np.ndarray):
        return None if array is None else view(array)
    if not on_device(array):
        return in_kind(view(as_array("self", array)), array)
    from mxnum.engine.cuda import arrays

    return arrays.owner_of(view(described("self", array)))


def unpacked(packed: Any, shape: tuple[int, ...], bits: int) -> Array:
    """Return the packed codes as a new array with one code in each byte."""
    array = as_array("packed", packed)
    codes: Array = dispatch_engine(packed=array).unpack(array, bits, shape[-1] if shape else 1)
    if not shape:
        codes = viewed(codes, lambda x: x[0, ...])
    return answer(codes, packed, None)


def padded_with_zeros(packed: Any, length: int, bits: int) -> Any:
    """Return packed rows of `length` codes whose padding bits are all zero.

    The result is `packed` itself, or a copy if some padding bits of `packed` are nonzero.
    """
    used = length * bits % 8
    if used == 0 or 0 in packed.shape:
        return packed
    engine = dispatch_engine(packed=packed)
    if engine.largest(packed[..., -1:]) < 1 << used:
        return packed
    return as_array("packed", engine.pack(as_array("codes", engine.unpack(packed, bits, length)), bits))


def is_contiguous(array: Any) -> bool:
    """Return True if the bytes of an array have C order, in host memory or on a GPU."""
    return bool(array.flags.c_contiguous if isinstance(array, np.ndarray) else array.is_contiguous)


def locked(codes: Array) -> Array:
    """Make an array of unpacked codes read-only, and return it.

    Writing to unpacked codes would not change the packed codes, so it must raise an error.
    """
    if isinstance(codes, np.ndarray):
        codes.flags.writeable = False
    return codes


def block_slice(item: Any, length: int, block: int, axis: int) -> slice:
    """Return the slice of scales for a slice of elements along a blocked axis.

    Raise ValueError unless the slice selects whole blocks.
    """
    if isinstance(item, slice):
        start, stop, step = item.indices(length)
        if step == 1 and start >= stop:  # an empty slice
            return slice(0, 0)
        if step == 1 and start % block == 0 and (stop >= length or stop % block == 0):
            return slice(start // block, -(-stop // block))
    raise ValueError(
        f"Argument 'key' must select whole blocks of {block} on axis {axis} (each block has one scale), not {item!r}."
    )
