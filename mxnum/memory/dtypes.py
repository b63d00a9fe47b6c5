"""Convert between numpy dtypes, descriptions of formats and bit patterns."""

from __future__ import annotations

import sys
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from mxnum import errors
from mxnum.formats import ELEMENTS, FLOATS, ElementFormat, ScaleFormat
from mxnum.memory.device import DeviceArray, described, on_device
from mxnum.memory.tensors import host_view

Array = npt.NDArray[Any]

#: For each format that has a dtype in ml_dtypes or numpy: the name of this dtype.
ML_DTYPES = {
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e3m2": "float6_e3m2fn",
    "e2m3": "float6_e2m3fn",
    "e2m1": "float4_e2m1fn",
    "int8": "int8",
    "int4": "int4",
    "bfloat16": "bfloat16",
}

#: The signed integer type of each size in bytes.
SIGNED = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}
_STORED = {size: np.dtype("i8" if size == 8 else f"u{size}") for size in (1, 2, 4, 8)}


def as_array(argument: str, value: Any, *, anywhere: bool = True) -> Any:
    """Return `value` as a numpy array, or as a `DeviceArray` if it is on a GPU.

    A GPU array raises an error unless `anywhere` is True. A torch tensor in host memory becomes an
    array on the same memory.
    """
    if type(value) is np.ndarray:  # fast path for the commonest type
        return value
    if not on_device(value):
        masks = sys.modules.get("numpy.ma")
        errors.require(masks is None or not masks.is_masked(value), argument, "without a mask", "a masked array")
        return np.asarray(host_view(argument, value))
    if not anywhere:
        raise errors.on_gpu(argument, "copy it first")
    return described(argument, value)


def float_array(argument: str, value: Any, *, anywhere: bool = False) -> tuple[Any, ElementFormat]:
    """Return `value` as an array of a float type in native byte order, and the type's format.

    Lists of Python floats become float64 arrays. Other types, such as integers, complex numbers and
    longer floats, raise TypeError.
    """
    array = value if type(value) is np.ndarray else as_array(argument, value, anywhere=anywhere)
    source = _native_float(array.dtype)
    if source is not None:
        return array, source
    name = array.dtype.name
    if name not in FLOATS:
        got = "strings" if array.dtype.kind in "SUT" else name
        raise TypeError(f"Argument {argument!r} must be an array of {errors.joined(FLOATS)}, not {got}.")
    errors.require(not isinstance(array, DeviceArray), argument, "in native byte order", array.dtype.str)
    return array.astype(array.dtype.newbyteorder("=")), FLOATS[name]


@lru_cache(maxsize=64)
def _native_float(dtype: np.dtype[Any]) -> ElementFormat | None:
    """Return the format of a dtype that is a float type in native byte order, otherwise None."""
    return FLOATS.get(dtype.name) if dtype.isnative else None


def result_format(dtype: Any, argument: str = "dtype", accepted: tuple[str, ...] = tuple(FLOATS)) -> ElementFormat:
    """Return the format of the float type that an argument such as `dtype=` names.

    `dtype` is a string, a dtype or a scalar type.
    """
    if type(dtype) is str and dtype in accepted:  # fast path for the commonest case
        return FLOATS[dtype]
    if type(dtype).__module__ == "torch":
        dtype = str(dtype).removeprefix("torch.")
    elif not isinstance(dtype, str):
        try:
            if dtype is None:  # numpy reads None as float64
                raise TypeError
            found = np.dtype(dtype)
        except TypeError:
            raise TypeError(f"Argument {argument!r} must be one of {list(accepted)}, not {dtype!r}.") from None
        dtype = found.name if found.isnative else found.str
    return FLOATS[errors.choose(argument, dtype, accepted)]


def known_name(fmt: ElementFormat) -> str:
    """Return the name of `fmt` if the known format of this name equals `fmt`, otherwise "".

    Comparing names is not enough: the element e2m1:bias=2 has the name e2m1 but other values than
    the known e2m1.
    """
    return fmt.name if fmt in (ELEMENTS.get(fmt.name), FLOATS.get(fmt.name)) else ""


@lru_cache(maxsize=64)
def numpy_dtype(fmt: ElementFormat) -> np.dtype[Any]:
    """Return the dtype, of numpy or ml_dtypes, whose bit patterns are the codes of `fmt`."""
    name = known_name(fmt)
    if name in ("float64", "float32", "float16"):
        return np.dtype(name)
    import ml_dtypes

    errors.require(
        name in ML_DTYPES, "format", f"one of {sorted(ML_DTYPES)}, the elements with a dtype in ml_dtypes", fmt
    )
    return np.dtype(getattr(ml_dtypes, ML_DTYPES[name], None) or ML_DTYPES[name])


@lru_cache(maxsize=64)
def scale_dtype(scale: ScaleFormat) -> np.dtype[Any]:
    """Return the dtype of arrays of scales: uint8 for 8-bit codes, otherwise a float type."""
    if scale.bits == 8 or scale.number is None:
        return np.dtype(np.uint8)
    return numpy_dtype(scale.number)


@cache
def code_dtype(bits: int) -> np.dtype[Any]:
    """Return the narrowest unsigned integer type that holds a code of `bits` bits."""
    return np.dtype(f"uint{8 if bits <= 8 else 16 if bits <= 16 else 32 if bits <= 32 else 64}")


def signed_bits(array: Array) -> Array:
    """Return a view of an array's memory as signed integers, for loops to read."""
    return array.view(SIGNED[array.itemsize])


def stored_bits(array: Array) -> Array:
    """Return a view of an array's memory as integers, for loops to write.

    Integers of 64 bits are signed, because `mxnum.definition` computes with signed integers.
    Narrower integers are unsigned.
    """
    return array.view(_STORED[array.itemsize])
