"""Quantize arrays in blocks, and decode quantized arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import ml_dtypes  # noqa: F401  (makes np.dtype("bfloat16") known)
import numpy as np
import numpy.typing as npt

from mxnum import errors, formats
from mxnum.formats import FLOATS, ElementFormat, MXFormat, ScaleFormat
from mxnum.modes import FloatScaleRule, Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule
from mxnum.reference.float_scales import divided, float_scale, nan_of, scale_number, tensor_scale
from mxnum.reference.numbers import (
    FLOAT16,
    FLOAT32,
    FLOAT64,
    Exact,
    decode_exact,
    exact,
    float_format,
    plus,
    random_of,
    round_to,
    shared_scale,
    times,
    to,
)

Array: TypeAlias = npt.NDArray[Any]


def float_array(x: Any) -> Array:
    """Return x as an array; raise TypeError if it does not hold floats."""
    array: Array = np.asarray(x)
    errors.require_type(array.dtype.name in FLOATS, "x", f"an array of {errors.joined(FLOATS)}", array.dtype.name)
    return array


def from_bits(bits: Sequence[int], e: ElementFormat) -> Array:
    """Return a float array with the given bit patterns."""
    dtype = np.dtype(e.name)
    return np.array(bits, f"uint{8 * dtype.itemsize}").view(dtype)


def _exact(x: Array) -> list[Exact]:
    """Return the exact numbers of a float array, decoded from their bits.

    The function uses no float operation, because a processor may be set to treat subnormal floats
    as zeros.
    """
    e = FLOATS[x.dtype.name]
    return [decode_exact(int(code), e) for code in x.astype(e.name).view(f"uint{e.bits}").flat]


class Blocks:
    """The division of an array into blocks.

    `counts` is the number of blocks along each axis, which is also the shape of the scales.
    Iteration yields, for each block, the index of its scale and the index of its elements.
    """

    def __init__(self, shape: tuple[int, ...], blocks: Sequence[int] | None, format: MXFormat) -> None:
        if blocks is None:
            blocks = (1,) * (len(shape) - 1) + (format.block,) * (len(shape) > 0)
        self.lengths = errors.block_lengths("blocks", blocks)
        accepted = f"one block length for each of {len(shape)} axes"
        errors.require(len(self.lengths) == len(shape), "blocks", accepted, self.lengths)
        self.counts = tuple(math.ceil(Fraction(n, b)) for n, b in zip(shape, self.lengths, strict=True))

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
        for index in np.ndindex(*self.counts):
            yield index, (*(slice(i * b, (i + 1) * b) for i, b in zip(index, self.lengths, strict=True)), ...)

    def check(self, argument: str, array: Any) -> Array:
        """Return `array` in numpy form; raise ValueError unless it has one item for each block."""
        result: Array = np.asarray(array)
        errors.require(
            result.shape == self.counts, argument, f"of shape {self.counts}, one for each block", result.shape
        )
        return result


@dataclass(frozen=True, eq=False)
class Quantized:
    """A quantized array: element codes, scales of blocks, and optional offsets and tensor scales.

    The format determines whether scales are E8M0 codes, other 8-bit codes, or floats.
    Offsets are float16. A tensor scale is a float32 array that broadcasts with the codes: one
    number, or one number for each row.
    """

    codes: Array
    scales: Array
    offsets: Array | None = None
    tensor_scale: Array | None = None


def quantize(
    x: Any,
    format: str | MXFormat,
    *,
    blocks: Sequence[int] | None = None,
    rounding: str = "rne",
    scale_rule: str | None = None,
    overflow: str = "saturate",
    nonfinite: str = "block",
    scales: Any = None,
    tensor_scale: Any = None,
    offset: str | None = None,
    offset_range: str = "exact",
    random_bits: Any = None,
    sr_bits: int = 30,
) -> Quantized:
    """Convert an array to MX: find a scale for each block, divide by it, and round once.

    The steps are those of section 6.3 of OCP MX v1.0. `nonfinite` says how NaN and Inf are handled;
    by default, a NaN or Inf makes its whole block NaN. If `offset` is ``"float16"``, each block is
    first centred: O is the middle of the block's range, rounded to float16, and the differences x -
    O are scaled and encoded. `scales` replaces the scales that a rule would find, and a NaN scale
    makes its block NaN. If the format has a tensor scale, each number is divided by the exact
    product of its block's scale and the tensor scale. There is one tensor scale for the whole array
    or, if `tensor_scale` is ``"row"``, one for each row along the last axis. `tensor_scale` can
    also be an array of tensor scales.
    """
    array, fmt = float_array(x), formats.get(format)
    e, wide = fmt.element, FLOAT64 if array.dtype == np.float64 else FLOAT32
    mode = errors.choose_member("rounding", rounding, Rounding)
    on_overflow = errors.choose_member("overflow", overflow, Overflow)
    policy = errors.choose_member("nonfinite", nonfinite, Nonfinite)
    kinds: type[ScaleRule | FloatScaleRule] = ScaleRule if fmt.scale.power_of_two else FloatScaleRule
    rule = next(iter(kinds)) if scale_rule is None else errors.choose_member("scale_rule", scale_rule, kinds)
    half = errors.choose_member("offset_range", offset_range, OffsetRange).is_half
    centred = offset is not None and errors.choose("offset", offset, ("float16",)) == "float16"
    errors.require(not centred or fmt.scale.power_of_two, "offset", "None where scales are floats", offset)

    for index, v in np.ndenumerate(array):
        found = "a NaN" if math.isnan(v) else "an infinity"
        if policy.by_error and not math.isfinite(v):
            raise errors.nonfinite("x", index, "finite", found)
        if policy.by_element and math.isnan(v) and e.specials == "none":
            raise errors.nonfinite("x", index, f"free of NaN for {e.name}, which has no NaN code", found)

    division = Blocks(array.shape, blocks, fmt)
    given = None if scales is None else _codes(division.check("scales", scales), fmt.scale)
    tensor = _tensor_scale(array, fmt, tensor_scale)
    words: Array = np.full(array.shape, None) if random_bits is None else np.asarray(random_bits)
    errors.require(words.shape == array.shape, "random_bits", f"of shape {array.shape}", words.shape)
    # Check the arguments before the loop, because the loop checks nothing if the array is empty.
    random_of(mode, None if random_bits is None else 0, sr_bits)

    codes, out_scales = np.zeros(array.shape, np.uint8), np.zeros(division.counts, f"u{fmt.scale.bits // 8}")
    offsets = np.zeros(division.counts, np.float16)
    for index, where in division:
        values = _exact(array[where])
        randoms = [random_of(mode, word, sr_bits) for word in words[where].flat]
        finite = [v.number for v in values if v.kind == "finite"]
        if policy.by_block and len(finite) < len(values):
            out_scales[index] = nan_of(fmt.scale)
            continue  # the codes and the offset of a NaN block remain 0
        t = _factor_of(tensor, array.shape, where)
        if given is not None and scale_number(int(given[index]), fmt.scale).kind == "nan":
            out_scales[index] = given[index]
            continue
        if centred and finite:
            low, high = min(finite), max(finite)
            centre = round_to(exact((high + low) / 2), FLOAT16, overflow=Overflow.SATURATE)
            offsets[index] = from_bits([centre], FLOAT16)[0]
            minus_o = exact(-float(offsets[index]))
            values = [to(plus(v, minus_o), wide) if v.kind == "finite" else v for v in values]
            finite = [(high - low) / 2] if half else [v.number for v in values if v.kind == "finite"]
        if given is not None:
            scale = int(given[index])
        elif isinstance(rule, FloatScaleRule):
            scale = float_scale(finite, fmt, rule, t.magnitude)
        else:
            scale = shared_scale(finite, e, scale_rule=rule)
        out_scales[index] = scale
        factor = times(scale_number(scale, fmt.scale), t)
        divisions = [divided(v, factor) for v in values]
        bits = [round_to(v, e, mode, on_overflow, r, sr_bits) for v, r in zip(divisions, randoms, strict=True)]
        codes[where] = np.array(bits, np.uint8).reshape(codes[where].shape)
    made_scales = _numbers(out_scales, fmt.scale)
    return Quantized(codes, made_scales, offsets if centred else None, tensor)


def _codes(scales: Array, scale: ScaleFormat) -> Array:
    """Return scales as codes: 8-bit codes stay unchanged, and floats become their bits."""
    return scales if scale.bits == 8 else scales.view(f"u{scale.bits // 8}")


def _numbers(codes: Array, scale: ScaleFormat) -> Array:
    """Return scale codes as scales: 8-bit codes stay unchanged, and longer codes become floats."""
    return codes if scale.bits == 8 else codes.view(scale.name)


def _tensor_scale(array: Array, fmt: MXFormat, asked: Any) -> Array | None:
    """Return the tensor scale as an array that broadcasts with x; None if the format has none."""
    if fmt.tensor_scale is None:
        errors.require(asked is None, "tensor_scale", f"None for {fmt.name}, which has no tensor scale", asked)
        return None
    if asked is not None and not isinstance(asked, str):
        return np.asarray(asked, np.float32)
    errors.require(asked in (None, "row"), "tensor_scale", "'row', or numbers", asked)
    rows = [array] if asked is None else [array[index] for index in np.ndindex(array.shape[:-1])]
    found = []
    for row in rows:
        scale = tensor_scale([v.number for v in _exact(row) if v.kind == "finite"], fmt)
        found.append(round_to(exact(scale), FLOAT32))
    return from_bits(found, FLOAT32).reshape(() if asked is None else (*array.shape[:-1], 1))


def _factor_of(tensor: Array | None, shape: tuple[int, ...], where: Any) -> Exact:
    """Return the tensor scale of a block, or 1 if there is no tensor scale."""
    if tensor is None:
        return exact(1.0)
    (code,) = set(np.broadcast_to(tensor.view(np.uint32), shape)[where].flat)
    return decode_exact(int(code), FLOAT32)


def dequantize(
    codes: Any,
    scales: Any,
    format: str | MXFormat,
    *,
    blocks: Sequence[int] | None = None,
    dtype: Any = "float32",
    offsets: Any = None,
    tensor_scale: Any = None,
) -> Array:
    """Return each element times the scale of its block, rounded once to `dtype`.

    Rounding is to nearest even (RNE). Before it rounds, the function also multiplies the product by
    the tensor scale and adds the offset of the block, where these are given.
    """
    fmt, target, codes = (
        formats.get(format),
        float_format(dtype if isinstance(dtype, str) else np.dtype(dtype)),
        np.asarray(codes),
    )
    division = Blocks(codes.shape, blocks, fmt)
    scales = _codes(division.check("scales", scales), fmt.scale)
    offsets = None if offsets is None else division.check("offsets", offsets)
    tensor = None if tensor_scale is None else np.asarray(tensor_scale, np.float32)
    result = np.zeros(codes.shape, target.name)
    for index, where in division:
        factor = times(scale_number(int(scales[index]), fmt.scale), _factor_of(tensor, codes.shape, where))
        values = [times(decode_exact(int(code), fmt.element), factor) for code in codes[where].flat]
        if offsets is not None:
            o = exact(float(offsets[index]))
            values = [plus(v, o) for v in values]
        result[where] = from_bits([round_to(v, target) for v in values], target).reshape(result[where].shape)
    return result


def fake_quantize(x: Any, format: str | MXFormat, *, blocks: Sequence[int] | None = None, **options: Any) -> Array:
    """Quantize, then dequantize to the dtype of x; values too large for the dtype become infinite.

    The options are the keywords of `quantize`.
    """
    q = quantize(x, format, blocks=blocks, **options)
    kept: Any = {"offsets": q.offsets, "tensor_scale": q.tensor_scale}
    return dequantize(q.codes, q.scales, format, blocks=blocks, dtype=np.asarray(x).dtype, **kept)
