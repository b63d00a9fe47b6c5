"""numpy dtypes on one side, format descriptions and bit patterns on the other."""

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

#: ml_dtypes' name for each element it knows.
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

#: The signed integers of each size.
SIGNED = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}
_STORED = {size: np.dtype("i8" if size == 8 else f"u{size}") for size in (1, 2, 4, 8)}


def as_array(argument: str, value: Any, *, anywhere: bool = True) -> Any:
    """`value` as a numpy array, or, where `anywhere` allows it, the description of one that lives on a GPU.

    A tensor of torch in host memory is an array on the same memory.
    """
    if type(value) is np.ndarray:  # (the quickest to ask)
        return value
    if not on_device(value):
        masks = sys.modules.get("numpy.ma")
        errors.require(masks is None or not masks.is_masked(value), argument, "without a mask", "a masked array")
        return np.asarray(host_view(argument, value))
    if not anywhere:
        raise errors.on_gpu(argument, "copy it first")
    return described(argument, value)


def float_array(argument: str, value: Any, *, anywhere: bool = False) -> tuple[Any, ElementFormat]:
    """`value` as an array of one of the four float types in native byte order, and that type's description.

    Lists of Python floats are taken as float64; integers, complex numbers and longer floats are refused.
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
    """The float type that a dtype in native byte order is; None for others."""
    return FLOATS.get(dtype.name) if dtype.isnative else None


def result_format(dtype: Any, argument: str = "dtype", accepted: tuple[str, ...] = tuple(FLOATS)) -> ElementFormat:
    """The float type that an argument such as `dtype=` names, given as a string, a dtype or a scalar type."""
    if type(dtype) is str and dtype in accepted:  # (quick)
        return FLOATS[dtype]
    if type(dtype).__module__ == "torch":
        dtype = str(dtype).removeprefix("torch.")
    elif not isinstance(dtype, str):
        try:
            if dtype is None:  # which numpy takes for float64
                raise TypeError
            found = np.dtype(dtype)
        except TypeError:
            raise TypeError(f"Argument {argument!r} must be one of {list(accepted)}, not {dtype!r}.") from None
        dtype = found.name if found.isnative else found.str
    return FLOATS[errors.choose(argument, dtype, accepted)]


def known_name(fmt: ElementFormat) -> str:
    """The name of an element or a float that is the known one of that name, else nothing: e2m1:bias=2 is no e2m1."""
    return fmt.name if fmt in (ELEMENTS.get(fmt.name), FLOATS.get(fmt.name)) else ""


@lru_cache(maxsize=64)
def numpy_dtype(fmt: ElementFormat) -> np.dtype[Any]:
    """The dtype whose memory holds codes of `fmt` as numbers: numpy's own, or one of ml_dtypes."""
    name = known_name(fmt)
    if name in ("float64", "float32", "float16"):
        return np.dtype(name)
    import ml_dtypes

    errors.require(name in ML_DTYPES, "format", f"one of {sorted(ML_DTYPES)} as they are known for a view", fmt)
    return np.dtype(getattr(ml_dtypes, ML_DTYPES[name], None) or ML_DTYPES[name])


@lru_cache(maxsize=64)
def scale_dtype(scale: ScaleFormat) -> np.dtype[Any]:
    """What scales are held in: bytes for codes of eight bits, else the float type that they are."""
    if scale.bits == 8 or scale.number is None:
        return np.dtype(np.uint8)
    return numpy_dtype(scale.number)


@cache
def code_dtype(bits: int) -> np.dtype[Any]:
    """The unsigned integer type that holds one code of that many bits."""
    return np.dtype(f"uint{8 if bits <= 8 else 16 if bits <= 16 else 32 if bits <= 32 else 64}")


def signed_bits(array: Array) -> Array:
    """The same memory as signed integers: what loops read."""
    return array.view(SIGNED[array.itemsize])


def stored_bits(array: Array) -> Array:
    """The same memory as the integers that loops write: unsigned, but for 64 bits, where the word is signed."""
    return array.view(_STORED[array.itemsize])
