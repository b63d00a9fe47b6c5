"""The operations on numpy arrays.

If the settings forbid NaN or infinity, an operation checks its input, and raises an error, before
it runs its plan.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np

from mxnum import errors
from mxnum.definition.pack import SR_BITS
from mxnum.engine.loops.panels import NO_WORDS, Draw, greatest_magnitude
from mxnum.engine.loops.random_bits import draw_from_seed, draw_from_words, words_of_key
from mxnum.engine.packing.arrays import pack, unpack
from mxnum.engine.quantizing import float_scales
from mxnum.engine.quantizing.float_scales import tensor_scale
from mxnum.engine.quantizing.offsets import OFFSETS
from mxnum.engine.quantizing.plan import Loops, Operation, Plan
from mxnum.engine.quantizing.powers_of_two import POWERS_OF_TWO, at_scale_one, encoding, from_codes
from mxnum.engine.request import DecodingRequest, DecodingSettings, RandomBits, Request, Settings, must_look
from mxnum.formats import ElementFormat, ScaleFormat
from mxnum.layout import packed_length
from mxnum.memory.dtypes import Array, code_dtype, numpy_dtype, signed_bits, stored_bits
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
    "repeated",
    "shared_scale",
    "tensor_scale",
    "unpack",
]

_BYTE = np.dtype(np.uint8)
#: Codes, scales, and offsets (None without asymmetric scaling).
Quantized = tuple[Array, Array, Array | None]


def quantize(request: Request, out: Quantized | None = None) -> Quantized:
    """Convert an array of floats to codes, scales and offsets, and return these three.

    The offsets are None without asymmetric scaling. New arrays have the memory order of the input,
    except that packed codes are always in C order.
    """
    asked, random = request.settings, request.random
    if asked.must_look:
        check_finite(request.x, asked.source, asked.element, asked.nonfinite)
    plan = to_codes_plan(asked, request.packed, None if random is None else drawn(random))
    has_offsets = asked.offset_range is not None
    codes: Any = None
    sides: Any = None
    if out is not None:
        codes, sides = out[0], out[1:] if has_offsets else out[1:2]
    codes, made = plan.run(
        request.x, codes, sides, request.scales, random, request.threads, request.tensor_scale, request.maxima
    )
    return codes, made[0], made[1] if has_offsets else None


def fake_quantize(request: Request, out: Array | None = None) -> Array:
    """Quantize an array, and return the values of the codes in the type of the input."""
    asked, random = request.settings, request.random
    if asked.must_look:
        check_finite(request.x, asked.source, asked.element, asked.nonfinite)
    plan = to_values_plan(asked, None if random is None else drawn(random))
    return plan.run(
        request.x, out, None, request.scales, random, request.threads, request.tensor_scale, request.maxima
    )[0]


def fake_quantizer(request: Request, out: Array) -> Callable[[], Array]:
    """Return a function that quantizes the request's array anew at each call.

    The function takes no arguments, writes the values of the codes to `out`, and returns `out`.

    The request must not have random bits, offsets or given scales.
    """
    asked, x = request.settings, request.x
    loops = to_values_plan(asked, None).direct
    is_direct = x.flags.c_contiguous and out.flags.c_contiguous and not np.may_share_memory(x, out)
    if not (is_direct and isinstance(loops, Loops) and asked.by_powers_of_two) or asked.must_look:
        return partial(fake_quantize, request, out)
    flat, marks = loops.flat(x, out, np.empty(asked.scales_shape, np.uint8)), loops.marks()
    run, threads = loops.run, request.threads

    def fake_quantize_again() -> Array:
        run(flat, marks, NO_WORDS, threads)
        return out

    return fake_quantize_again


def repeated(asked: Settings, out: Array) -> Callable[[Array, RandomBits | None], None] | None:
    """Return a function that quantizes an array in C order, and writes the values to `out`.

    The function takes two arguments: the numbers, as a flat array of bit patterns, and the source
    of random bits. Only one thread may call the function at a time.

    The result is None if numbers must be checked for NaN or infinity, if scales are given, if `out`
    is not in C order, or if loops cannot process a whole array at once.
    """
    loops = to_values_plan(asked, draw_from_seed(SR_BITS) if asked.rounding.is_stochastic else None).direct
    if not isinstance(loops, Loops) or asked.must_look or asked.scales_given or not out.flags.c_contiguous:
        return None
    scales = np.empty(asked.scales_shape, transform_of(asked.format.scale, False).sides[0])
    _, to, scales, *rest = loops.flat(out, out, scales)
    has_tensor, run, new_marks = asked.format.tensor_scale is not None, loops.run, loops.marks

    def fake_quantize_bits(bits: Array, random: RandomBits | None) -> None:
        words, more = NO_WORDS if random is None else words_of_key(random.key, random.first), rest
        if has_tensor:
            tensor, maxima = float_scales.scale_of_bits(asked, bits)
            more = [stored_bits(tensor.ravel()), rest[1] if maxima is None else maxima]
        run((bits, to, scales, *more), new_marks(), words, None)

    return fake_quantize_bits


def shared_scale(request: Request, out: Array | None = None) -> Array:
    """Return the scale code of each block, as `quantize` computes it."""
    asked = request.settings
    if asked.nonfinite.by_error:
        check_finite(request.x, asked.source, asked.element, asked.nonfinite)
    plan, sides = to_codes_plan(asked, False, None), None if out is None else (out,)
    tensor, maxima = request.tensor_scale, request.maxima
    _, made = plan.run(request.x, None, sides, threads=request.threads, tensor_scale=tensor, maxima=maxima)
    return made[0]


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
    """Convert each number to a code of the format `target`, without blocks and at scale 1."""
    check_finite(x, source, target, nonfinite)
    plan = encoding_plan(x.shape, source, target, (rounding, overflow), drawn(random))
    return plan.run(x, out, random=random, threads=threads)[0]


def dequantize(request: DecodingRequest, out: Array | None = None) -> Array:
    """Return the values of an MX array.

    If `out` is None, the new array has the memory order of the codes.
    """
    sides = (request.scales, request.offsets) if request.settings.has_offsets else (request.scales,)
    plan, tensor = from_codes_plan(request.settings), request.tensor_scale
    return plan.run(request.stored, out, sides, threads=request.threads, tensor_scale=tensor)[0]


def decode(
    codes: Array, element: ElementFormat, target: ElementFormat, out: Array | None = None, threads: int | None = None
) -> Array:
    """Return the value of each element code, without blocks and at scale 1."""
    return decoding_plan(codes.shape, element, target).run(codes, out, threads=threads)[0]


def beside(value: Array, like: Array) -> Array:
    """Return `value` unchanged, because `value` and `like` are both in host memory."""
    return value


def copied(array: Array) -> Array:
    """Return a copy of an array."""
    return array.copy()


def largest(codes: Array) -> int:
    """Return the largest code."""
    return int(codes.max())


def equal(a: Array, b: Array) -> bool:
    """Return True if two arrays have the same shape and bits."""
    return np.array_equal(a.view(code_dtype(8 * a.itemsize)), b.view(code_dtype(8 * b.itemsize)))


def check_finite(x: Array, source: ElementFormat, element: ElementFormat, nonfinite: Nonfinite) -> None:
    """Raise an error if `x` holds a NaN or infinity that the policy `nonfinite` forbids.

    The policy "raise" forbids both. The policy "element" forbids NaN if the element format has no
    NaN code. The message names the index of the first forbidden number in C order.
    """
    if not must_look(element, nonfinite):
        return
    flat = signed_bits(x).ravel(order="K")
    if greatest_magnitude(source)(flat) <= source.max_code:
        return
    is_any = nonfinite.by_error  # The policy "raise" forbids infinities as well as NaN.
    magnitude = signed_bits(x) & ((1 << (source.bits - 1)) - 1)
    refused = magnitude > source.max_code + (0 if is_any else 1)
    if refused.any():
        found: Any = np.unravel_index(int(np.argmax(refused)), x.shape)
        where = tuple(int(i) for i in found)
        if is_any:
            raise errors.nonfinite("x", where, "finite everywhere with nonfinite='raise'", "a NaN or infinity")
        raise errors.nonfinite("x", where, f"free of NaN for {element.name}, which has no NaN code", "a NaN")


# Plans are cached: the first call with some settings makes a plan, and later calls use it again.


def drawn(random: RandomBits | None) -> Draw:
    """Return the kernel that draws random bits from `random`, or None if `random` is None."""
    if random is None:
        return None
    return draw_from_seed(random.sr_bits) if random.words is None else draw_from_words(random.sr_bits)


class BlockTransform(Protocol):
    """A factory of operations on blocks.

    `apply` returns an operation that quantizes, `undo` an operation that decodes, and
    `apply_and_undo` an operation that quantizes and then decodes.
    """

    @property
    def sides(self) -> tuple[np.dtype[Any], ...]:
        """The dtype of the scales, followed by the dtype of the offsets if blocks have offsets."""

    def apply(self, asked: Settings) -> Operation:
        """Return the operation that computes the scales, offsets and codes of blocks."""

    def apply_and_undo(self, asked: Settings) -> Operation:
        """Return the operation that quantizes numbers, then decodes them to the input's type."""

    def undo(self, asked: DecodingSettings) -> Operation:
        """Return the operation that computes values from codes, scales and offsets."""


def transform_of(scale: ScaleFormat, has_offsets: bool) -> BlockTransform:
    """Return the block transform for a scale format.

    Only scales that are powers of two may have offsets.
    """
    if not scale.power_of_two:
        return float_scales.transform(scale)
    return OFFSETS if has_offsets else POWERS_OF_TWO


@lru_cache(maxsize=4096)
def to_codes_plan(asked: Settings, packed: bool, draw: Draw) -> Plan:
    """Return the plan that computes the scales, offsets and codes of blocks.

    If `packed` is False, each code has a byte of its own.
    """
    transform, bits = transform_of(asked.format.scale, asked.offset_range is not None), asked.element.bits
    out = _packed_shape(asked.shape, bits) if packed else asked.shape, _BYTE
    kinds = out, *((asked.scales_shape, dtype) for dtype in transform.sides)
    return Plan(asked.shape, asked.blocks, transform.apply(asked), draw, kinds, bits if packed else 0)


@lru_cache(maxsize=4096)
def to_values_plan(asked: Settings, draw: Draw) -> Plan:
    """Return the plan that quantizes numbers, then decodes them to the input's type."""
    transform = transform_of(asked.format.scale, asked.offset_range is not None)
    kinds = (asked.shape, numpy_dtype(asked.source)), *((asked.scales_shape, dtype) for dtype in transform.sides)
    return Plan(asked.shape, asked.blocks, transform.apply_and_undo(asked), draw, kinds)


@lru_cache(maxsize=4096)
def from_codes_plan(asked: DecodingSettings) -> Plan:
    """Return the plan that computes the values of an MX array."""
    transform = transform_of(asked.scale, asked.has_offsets)
    kinds = (asked.shape, numpy_dtype(asked.target)), *((asked.scales_shape, dtype) for dtype in transform.sides)
    packed_bits = asked.element.bits if asked.packed else 0
    return Plan(asked.shape, asked.blocks, transform.undo(asked), None, kinds, packed_bits)


@lru_cache(maxsize=4096)
def encoding_plan(
    shape: tuple[int, ...], source: ElementFormat, target: ElementFormat, modes: tuple[Rounding, Overflow], draw: Draw
) -> Plan:
    """Return the plan that encodes each number on its own, without blocks."""
    kinds = ((shape, code_dtype(target.bits)),)
    return Plan(shape, (1,) * len(shape), encoding(source, target, *modes), draw, kinds)


@lru_cache(maxsize=4096)
def decoding_plan(shape: tuple[int, ...], element: ElementFormat, target: ElementFormat) -> Plan:
    """Return the plan that decodes each element code on its own, without blocks."""
    decode = at_scale_one(from_codes(element, target))
    return Plan(shape, (1,) * len(shape), decode, None, ((shape, numpy_dtype(target)),))


def _packed_shape(shape: tuple[int, ...], bits: int) -> tuple[int, ...]:
    *rows, length = shape or (1,)
    return (*rows, packed_length(length, bits))
