"""The operations on numpy arrays: each looks at what may be refused, and runs the plan of the call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.dtypes import Array, code_dtype, signed_bits
from mxnum.engine.loops.random_bits import NO_DRAW
from mxnum.engine.loops.rows import greatest_magnitude
from mxnum.engine.packing.arrays import pack, unpack
from mxnum.engine.quantizing.conversion import Loops
from mxnum.engine.quantizing.float_scales import tensor_scale
from mxnum.engine.quantizing.plan import (
    decoding_plan,
    drawn,
    encoding_plan,
    from_codes_plan,
    to_codes_plan,
    to_scales_plan,
    to_values_plan,
)
from mxnum.engine.request import DecodingRequest, RandomBits, Request, must_look
from mxnum.formats import ElementFormat
from mxnum.modes import Nonfinite, Overflow, Rounding

__all__ = [
    "beside",
    "copied",
    "decode",
    "dequantize",
    "encode",
    "equal",
    "fake_quantize",
    "fake_quantizer",
    "largest",
    "pack",
    "quantize",
    "shared_scale",
    "tensor_scale",
    "unpack",
]

#: Codes, scales, and offsets with asymmetric scaling.
Quantized = tuple[Array, Array, Array | None]


def quantize(request: Request, out: Quantized | None = None) -> Quantized:
    """Codes, scales and offsets (None without asymmetric scaling) of an array of floats, in the order of its memory.

    Packed codes are as `pack` makes them, in C order.
    """
    asked, random = request.settings, request.random
    if asked.must_look:
        check_finite(request.x, asked.source, asked.element, asked.nonfinite)
    plan = to_codes_plan(asked, request.packed, NO_DRAW if random is None else drawn(random))
    codes: Array | None = None
    sides: tuple[Array, ...] | None = None
    if out is not None:
        codes, scales, offsets = out
        sides = (scales,) if offsets is None else (scales, offsets)
    codes, made = plan.run(request.x, codes, sides, request.scales, random, request.threads, request.tensor_scale)
    return codes, made[0], made[1] if len(made) > 1 else None


def fake_quantize(request: Request, out: Array | None = None) -> Array:
    """The values of the quantized array in the type of the input."""
    asked, random = request.settings, request.random
    if asked.must_look:
        check_finite(request.x, asked.source, asked.element, asked.nonfinite)
    plan = to_values_plan(asked, NO_DRAW if random is None else drawn(random))
    return plan.run(request.x, out, None, request.scales, random, request.threads, request.tensor_scale)[0]


def fake_quantizer(request: Request, out: Array) -> Callable[[], Array]:
    """`fake_quantize` of the numbers that the array has when called, without random bits, offsets and given scales."""
    asked, x = request.settings, request.x
    loops = to_values_plan(asked, NO_DRAW).direct
    is_direct = x.flags.c_contiguous and out.flags.c_contiguous and not np.may_share_memory(x, out)
    if not (is_direct and isinstance(loops, Loops)) or asked.must_look:
        return partial(fake_quantize, request, out)
    flat, marks = loops.flat(x, out, np.empty(asked.scales_shape, np.uint8)), loops.marks()
    run, threads = loops.run, request.threads

    def fake_quantize_again() -> Array:
        run(flat, marks, 0, threads)
        return out

    return fake_quantize_again


def shared_scale(request: Request, out: Array | None = None) -> Array:
    """The scale of each block."""
    asked = request.settings
    if asked.nonfinite.by_error:
        check_finite(request.x, asked.source, asked.element, asked.nonfinite)
    sides = None if out is None else (out,)
    plan, tensor = to_scales_plan(asked), request.tensor_scale
    return plan.run(request.x, None, sides, threads=request.threads, tensor_scale=tensor)[1][0]


def encode(
    x: Array,
    source: ElementFormat,
    target: ElementFormat,
    *,
    rounding: Rounding,
    overflow: Overflow,
    nonfinite: Nonfinite,
    random: RandomBits | None,
    out: Array | None = None,
    threads: int | None = None,
) -> Array:
    """Codes of `target` for the elements alone, at scale 1."""
    check_finite(x, source, target, nonfinite)
    plan = encoding_plan(x.shape, source, target, (rounding, overflow), drawn(random))
    return plan.run(x, out, None, None, random, threads)[0]


def dequantize(request: DecodingRequest, out: Array | None = None) -> Array:
    """Values of an MX array; without `out` a new array in the order of the memory of the codes."""
    asked, scales, offsets = request.settings, request.scales, request.offsets
    sides = (scales,) if offsets is None else (scales, offsets)
    plan, tensor = from_codes_plan(asked), request.tensor_scale
    return plan.run(request.stored, out, sides, None, None, request.threads, tensor)[0]


def decode(
    codes: Array, element: ElementFormat, target: ElementFormat, out: Array | None = None, threads: int | None = None
) -> Array:
    """Values of element codes alone, at scale 1."""
    return decoding_plan(codes.shape, element, target).run(codes, out, threads=threads)[0]


def beside(value: Array, like: Array) -> Array:
    """A float32 number where an array lives."""
    return value


def copied(array: Array) -> Array:
    """A copy."""
    return array.copy()


def largest(codes: Array) -> int:
    """The largest code."""
    return int(codes.max())


def equal(a: Array, b: Array) -> bool:
    """Whether shapes and bits are the same."""
    return np.array_equal(a.view(code_dtype(8 * a.itemsize)), b.view(code_dtype(8 * b.itemsize)))


def check_finite(x: Array, source: ElementFormat, element: ElementFormat, nonfinite: Nonfinite) -> None:
    """Raise where the policy, or an element that has no NaN, says so, naming the first index in C order."""
    if not must_look(element, nonfinite):
        return
    flat = signed_bits(x).ravel(order="K")
    if greatest_magnitude(source)(flat) <= source.max_code:
        return
    is_any = nonfinite.by_error  # infinities as well
    magnitude = signed_bits(x) & ((1 << (source.bits - 1)) - 1)
    refused = magnitude > source.max_code + (0 if is_any else 1)
    if refused.any():
        found: Any = np.unravel_index(int(np.argmax(refused)), x.shape)
        where = tuple(int(i) for i in found)
        if is_any:
            raise errors.nonfinite("x", where, "finite everywhere with nonfinite='raise'", "a NaN or infinity")
        raise errors.nonfinite("x", where, f"free of NaN for {element.name}, which has no NaN code", "a NaN")
