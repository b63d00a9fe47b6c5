"""Calling an implementation, and what it gave as columns: nothing shared with it, nothing masked.

A callable gets arrays of its own, so what it writes into them changes nothing here. Wrong shapes and types are errors.
A code that does not fit in its bits stays what it is: its column is of int64 then, and the judge calls the case wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.conformance.expected import as_bits, as_floats
from mxnum.conformance.task import Columns, Field, Task
from mxnum.conformance.tensors import as_array, handed
from mxnum.dtypes import ML_DTYPES, Array, code_dtype, numpy_dtype
from mxnum.interop.swizzle import swizzle_scales, unswizzle_scales
from mxnum.layout import packed_length

#: How the scales of blocks may lie.
SCALES = ("plain", "swizzled")
#: torch's name of two codes in a byte, the first in the lower half.
PAIRS = "float4_e2m1fn_x2"


def called(function: Callable[..., Any], arguments: Sequence[Array], arrays: str = "numpy") -> Any:
    """What a callable gives for arrays, which must be its own."""
    with np.errstate(all="ignore"):
        return function(*(handed(argument, arrays) for argument in arguments))


def answers_of(
    function: Callable[..., Any], task: Task, inputs: Columns, arrays: str = "numpy", scales: str = "plain"
) -> Columns:
    """Call the implementation with a batch of cases, and bring what it gives into columns."""
    count = len(next(iter(inputs.values())))
    match task.operation:
        case "encode":
            arguments = [as_floats(inputs["x"][:, 0], task.source)]
        case "quantize" | "scale":
            arguments = [as_floats(inputs["x"], task.source)]
        case "dequantize":
            arguments = [inputs["code"][:, 0], inputs["scale"][:, 0]]
        case _:
            arguments = [inputs[name] for name in ("a", "a_scale", "b", "b_scale")]
    if task.is_stochastic:
        words = inputs["random"]
        arguments.append(words[:, 0] if task.operation == "encode" else words)
    result = called(function, [argument.copy() for argument in arguments], arrays)
    given: dict[str, Any] = {task.outputs[0].name: result}
    if task.operation == "quantize":
        codes, of_scales = both(result)
        shapes = [tuple(getattr(part, "shape", ())) for part in (codes, of_scales)]
        if task.block > 1 and shapes[0] in ((count,), (count, 1)) and shapes[1] == (count, task.block):
            raise ValueError("Argument 'function' must give (codes, scales), not (scales, codes).")
        given = {"scale": of_scales, "codes": codes}
    return {field.name: _column(given[field.name], field, count, task, scales) for field in task.outputs}


def both(result: Any) -> tuple[Any, Any]:
    """Codes and scales, from what a quantizer gave."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise TypeError(f"Argument 'function' must give (codes, scales), not {type(result).__name__}.")
    return result[0], result[1]


def _column(value: Any, field: Field, count: int, task: Task, scales: str) -> Array:
    name = f"function: {field.name}"
    if field.kind == "float":
        return as_bits(floats(value, name, task, (count,)), task.source).reshape(count, 1)
    if field.kind == "scale":
        return fitted(scale_codes(value, name, (count, 1), scales, ((count,),)), field.bits)
    shape = (count,) if field.count == 1 and task.operation == "encode" else (count, field.count)
    return fitted(element_codes(value, name, task, shape).reshape(count, field.count), field.bits)


def floats(value: Any, name: str, task: Task, shape: tuple[int, ...]) -> Array:
    """Numbers of the type that is asked for, in native byte order."""
    array, kind = as_array(value, name)
    wanted = numpy_dtype(task.source)
    errors.require_type(kind == wanted.name, name, f"an array of {wanted.name}", kind)
    errors.require(array.shape == shape, name, f"of shape {shape}", array.shape)
    return array.astype(wanted)


def element_codes(value: Any, name: str, task: Task, shape: tuple[int, ...], packs: bool = False) -> Array:
    """Codes of elements as integers of any size, from integers, from the element's own type, or packed by rows.

    Rows of one code look the same either way, and are read as packed if the callable `packs`.
    """
    array, kind = as_array(value, name)
    element, bits = task.element, task.element.bits
    packed = packed_shape(shape, bits)
    own = ML_DTYPES.get(element.name, "")
    if kind == PAIRS and element.name == "e2m1":
        errors.require(array.shape == packed, name, f"of shape {packed}, two codes a byte", array.shape)
        return unpacked(array, shape[-1], bits)
    if kind == own:  # int8 and int4 count in two's complement, whose bits are the code
        array = array.view(np.int8 if element.integer else np.uint8).astype(np.int64) & ((1 << bits) - 1)
    else:
        accepted = f"an array of integers{f' or {own}' * bool(own)}"
        errors.require_type(array.dtype.kind in "ui" and not kind.startswith("float"), name, accepted, kind)
    if bits < 8 and array.shape == packed and array.dtype == np.uint8 and (packs or array.shape != shape):
        return unpacked(array, shape[-1], bits)
    also = f" (or {packed}, packed in bytes)" if bits < 8 and packed != shape else ""
    errors.require(array.shape == shape, name, f"of shape {shape}{also}", array.shape)
    return array


def packed_shape(shape: tuple[int, ...], bits: int) -> tuple[int, ...]:
    """The shape of codes that are packed row by row."""
    return (*shape[:-1], packed_length(shape[-1], bits))


def scale_codes(
    value: Any, name: str, shape: tuple[int, int], lie: str = "plain", others: Sequence[tuple[int, ...]] = ()
) -> Array:
    """Codes of scales as integers of any size and of that shape; `others` are shapes that mean the same."""
    array, kind = as_array(value, name)
    if kind == "float8_e8m0fnu":
        array = array.view(np.uint8)
    else:
        errors.require_type(
            array.dtype.kind in "ui" and not kind.startswith("float"), name, "an array of integers or float8_e8m0fnu",
            kind,
        )  # fmt: skip
    if lie == "swizzled":
        size = swizzle_scales(np.zeros(shape, np.uint8)).size
        errors.require(array.size == size, name, f"of {size} bytes, the swizzled scales of {shape}", array.shape)
        errors.require_type(array.dtype == np.uint8, name, "an array of uint8 or float8_e8m0fnu", array.dtype.name)
        return unswizzle_scales(array.ravel(), shape)
    accepted = " or ".join(str(s) for s in (*others, shape))
    errors.require(array.shape in (shape, *others), name, f"of shape {accepted}", array.shape)
    return array.reshape(shape)


def fitted(array: Array, bits: int) -> Array:
    """Codes in the smallest type that holds them if all fit in their bits; otherwise as they are, in int64."""
    if array.dtype.kind == "u" and array.dtype.itemsize == 8:
        array = np.minimum(array, np.uint64((1 << 63) - 1))
    wide = array.astype(np.int64)
    return wide.astype(code_dtype(bits)) if fits(wide, bits).all() else wide


def fits(codes: Array, bits: int) -> Array:
    """Which codes can be what they are said to be."""
    return np.asarray((codes >= 0) & (codes < 1 << bits)) if codes.dtype == np.int64 else np.ones(codes.shape, bool)


def unpacked(packed: Array, length: int, bits: int) -> Array:
    """The codes of packed rows, each from its lowest bit on; what is left of a last byte is not looked at."""
    stream = np.unpackbits(np.ascontiguousarray(packed), axis=-1, bitorder="little")[..., : length * bits]
    digits = stream.reshape(*packed.shape[:-1], length, bits).astype(np.int64)
    return np.asarray(digits @ (1 << np.arange(bits)))
