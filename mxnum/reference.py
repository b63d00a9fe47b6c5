"""The meaning of MX, written to be read: exact rationals, one obvious step at a time, no bit tricks, no speed.

Everything that computes in this library is checked against this module, so it shares nothing with the fast code but
the description of the formats. A number is an `Exact`: a sign and a rational magnitude, or an infinity, or a NaN. All
results come from three operations on them: the exact product, the exact sum, and one rounding into a format.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import ml_dtypes  # noqa: F401  (makes np.dtype("bfloat16") known)
import numpy as np
import numpy.typing as npt

from mxnum import errors, formats
from mxnum.formats import FLOATS, ElementFormat, MXFormat
from mxnum.modes import Accumulate, Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule

Array: TypeAlias = npt.NDArray[Any]
Element: TypeAlias = str | ElementFormat

_BIAS, _SCALE_NAN = 127, 255  # E8M0: a scale code means 2**(code - 127), or NaN
_FLOAT16, _FLOAT32, _FLOAT64 = FLOATS["float16"], FLOATS["float32"], FLOATS["float64"]


@dataclass(frozen=True)
class Exact:
    """An exact datum: `kind` is finite, inf or nan; `magnitude` is meaningful when finite. Zero and NaN have a sign."""

    kind: str
    negative: bool = False
    magnitude: Fraction = Fraction(0)

    @property
    def number(self) -> Fraction:
        """The signed value of a finite number."""
        return -self.magnitude if self.negative else self.magnitude


_ZERO, _NAN = Exact("finite"), Exact("nan")


def _exact(x: float | Fraction) -> Exact:
    """Python floats and Fractions are read without error."""
    if isinstance(x, Fraction):
        return Exact("finite", x < 0, abs(x))
    negative = math.copysign(1.0, x) < 0
    if not math.isfinite(x):
        return Exact("nan" if math.isnan(x) else "inf", negative)
    return Exact("finite", negative, abs(Fraction(float(x))))


def _times(a: Exact, b: Exact) -> Exact:
    """The exact product: signs combine, 0 * Inf is NaN."""
    kinds, negative = {a.kind, b.kind}, a.negative != b.negative
    if "nan" in kinds or ("inf" in kinds and any(v.kind == "finite" and v.magnitude == 0 for v in (a, b))):
        return _NAN
    return Exact("inf" if "inf" in kinds else "finite", negative, a.magnitude * b.magnitude)


def _plus(a: Exact, b: Exact) -> Exact:
    """The exact sum: Inf - Inf is NaN; an exact zero is +0 unless both terms are negative zeros (IEEE 754, RNE)."""
    kinds = [a.kind, b.kind]
    if "nan" in kinds or (kinds == ["inf", "inf"] and a.negative != b.negative):
        return _NAN
    if "inf" in kinds:
        return a if a.kind == "inf" else b
    total = a.number + b.number
    return Exact("finite", a.negative and b.negative if total == 0 else total < 0, abs(total))


def _two_to(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def _scaled(x: Exact, exponent: int) -> Exact:
    """x * 2**exponent; a NaN keeps its sign, which an element may record."""
    return x if x.kind == "nan" else _times(x, Exact("finite", False, _two_to(exponent)))


def _floor_log2(v: Fraction) -> int:
    """The E with 2**E <= v < 2**(E+1). The lengths of numerator and denominator leave two candidates; v decides."""
    candidate = v.numerator.bit_length() - v.denominator.bit_length()
    return candidate if _two_to(candidate) <= v else candidate - 1


class _Layout(NamedTuple):
    sign: int  # the weight of the sign bit: codes below it are the nonnegative numbers
    largest: int  # the code of the largest finite value
    infinity: int | None
    nan: int | None  # the NaN that is produced, without sign
    emin: int  # the exponent of the smallest normal value; the subnormals, and all of an integer, have its spacing


@cache
def _layout(e: ElementFormat) -> _Layout:
    """Where the codes of a format are. Special codes, if any, lie at the very end of the top exponent."""
    mantissas: int = 2**e.mantissa_bits
    sign: int = 2**e.exponent_bits * mantissas
    emin = 0 if e.integer else 1 - e.bias
    match e.specials:
        case "ieee":
            infinity = sign - mantissas
            nan = infinity + mantissas // 2 if e.canonical_nan else sign - 1
            return _Layout(sign, infinity - 1, infinity, nan, emin)
        case "nan":
            return _Layout(sign, sign - 2, None, sign - 1, emin)
        case _:
            return _Layout(sign, sign - 1, None, None, emin)


def decode_exact(code: int, element: Element) -> Exact:
    """What one code means, on its own: (-1)^S * 2^(E-bias) * 1.M, subnormals 2^(1-bias) * 0.M, and the special codes.

    Integers are two's complement times 2**-m: INT8 is the integer / 64, and 0x80 reads -2 although it is never written.
    """
    e = formats.element(element)
    sign, largest, infinity, _, emin = _layout(e)
    code = errors.integer("code", code, 0, 2 * sign - 1)
    if e.integer:
        return _exact((code - 2 * sign if code >= sign else code) * _two_to(-e.mantissa_bits))
    negative, magnitude = code >= sign, code % sign
    if magnitude > largest:
        return Exact("inf" if magnitude == infinity else "nan", negative)
    step, mantissa = divmod(magnitude, 2**e.mantissa_bits)
    fraction = mantissa * _two_to(-e.mantissa_bits)
    value = fraction * _two_to(emin) if step == 0 else (1 + fraction) * _two_to(emin + step - 1)
    return Exact("finite", negative, value)


def _goes_away(rounding: Rounding, negative: bool, below: int, delta: Fraction, random: int, sr_bits: int) -> bool:
    """Whether a magnitude at fraction `delta` of the gap above code `below` goes to the neighbour away from zero."""
    half = Fraction(1, 2)
    choice = {
        Rounding.RNE: delta > half or (delta == half and below % 2 == 1),
        Rounding.RNA: delta >= half,
        Rounding.RTZ: False,
        Rounding.RTP: not negative,
        Rounding.RTN: negative,
        Rounding.RTO: below % 2 == 0,
        Rounding.SR: math.floor(delta * 2**sr_bits) + random >= 2**sr_bits,
    }[rounding]
    return delta != 0 and choice


def _round(
    x: Exact, e: ElementFormat, rounding: Rounding = Rounding.RNE, overflow: Overflow = Overflow.IEEE, random: int = 0,
    sr_bits: int = 30,
) -> int:  # fmt: skip
    """The code of x in format e. Codes of one sign count the representable magnitudes upward from zero, so the code
    k * 2**m + q (exponent step k, significand q) can be continued past the largest: that is the unbounded exponent.
    """
    sign, largest, infinity, nan, emin = _layout(e)

    def signed(code: int) -> int:
        if e.integer:  # two's complement, which has no -0
            return (2 * sign - code) % (2 * sign) if x.negative else code
        positive = not x.negative or (e.canonical_nan and code == nan)
        return code if positive else code + sign

    if x.kind == "nan":
        return largest if nan is None else signed(nan)
    if x.kind == "finite":
        exponent = max(_floor_log2(x.magnitude), emin) if x.magnitude else emin
        steps = x.magnitude / _two_to(exponent - e.mantissa_bits)
        significand = math.floor(steps)
        code: int = (exponent - emin) * 2**e.mantissa_bits + significand
        code += _goes_away(rounding, x.negative, code, steps - significand, random, sr_bits)
        if code <= largest:
            return signed(code)

    # Beyond the largest finite value: infinite, or overflowing.
    beyond = {Overflow.SATURATE: None, Overflow.IEEE: nan if infinity is None else infinity}[overflow]
    stays = {
        Rounding.RNE: False, Rounding.RNA: False, Rounding.SR: False, Rounding.RTZ: True, Rounding.RTO: True,
        Rounding.RTP: x.negative, Rounding.RTN: not x.negative,
    }[rounding]  # fmt: skip
    return signed(largest if beyond is None or (x.kind == "finite" and stays) else beyond)


def _to(x: Exact, e: ElementFormat) -> Exact:
    """x after one RNE rounding into a float format."""
    return decode_exact(_round(x, e), e)


def _random(rounding: Rounding, random_bits: Any, sr_bits: int) -> int:
    """R, an integer in [0, 2**sr_bits): the low bits of the word."""
    errors.integer("sr_bits", sr_bits, 1, 30)
    if not rounding.is_stochastic:
        return 0
    errors.require(random_bits is not None, "random_bits", "given with rounding='sr'", random_bits)
    return int(errors.integer("random_bits", random_bits, 0, 2**32 - 1) % 2**sr_bits)


def encode(
    x: float | Fraction,
    element: Element,
    *,
    rounding: str = "rne",
    overflow: str = "saturate",
    scale: int = _BIAS,
    random_bits: int | None = None,
    sr_bits: int = 30,
) -> int:
    """The code of the exact real x / 2**(scale-127), rounded once.

    The number is rounded with unbounded exponent first; only then is it compared with the largest finite value, and
    `overflow` decides. A zero result keeps the sign of x. NaN gives the NaN code, or +max in an element without one.
    The scale code 255 (NaN) gives code 0: nothing an element says can matter in such a block. The target may also be
    float64, float32, bfloat16 or float16; with ``overflow="ieee"`` that is the ordinary conversion.
    """
    mode = errors.choose_member("rounding", rounding, Rounding)
    policy = errors.choose_member("overflow", overflow, Overflow)
    random = _random(mode, random_bits, sr_bits)
    scale = errors.integer("scale", scale, 0, 255)
    if scale == _SCALE_NAN:
        return 0
    return _round(_scaled(_exact(x), _BIAS - scale), formats.element(element), mode, policy, random, sr_bits)


def _meaning(element: Exact, scale: int, offset: Exact | None = None) -> Exact:
    """X * P (+ O), exactly; NaN whatever the element says when the scale is NaN."""
    scale = errors.integer("scale", scale, 0, 255)
    if scale == _SCALE_NAN:
        return _NAN
    value = _scaled(element, scale - _BIAS)
    return value if offset is None else _plus(value, offset)


def decode(code: int, element: Element, *, dtype: str = "float64", scale: int = _BIAS) -> int:
    """The bit pattern, in `dtype`, of scale times element: the exact product, rounded RNE once.

    A NaN is canonical, with the sign bit clear (0x7FC00000 in float32), whatever NaN it came from; -0 keeps its sign.
    Products too large for `dtype` give infinity; float64 holds every product exactly.
    """
    return _round(_meaning(decode_exact(code, element), scale), _float_format(dtype))


def shared_scale(values: Iterable[float | Fraction], element: Element, *, scale_rule: str = "floor") -> int:
    """The E8M0 code for a block whose largest finite magnitude is A (OCP MX v1.0 section 6.3 for `floor`).

    With A = f * 2**E, 1 <= f < 2, the rules place A so: `floor` aligns E with the largest element exponent emax and
    lets the top saturate; `ceil` adds one iff f > 1; `even` adds one iff f, rounded to m bits, carries to 2; `rceil`
    is the least exponent at which A does not exceed the largest element; `half_up` adds one iff f >= 7/4;
    `floor_plus_one` always does. The exponent is then clamped to -127..127.
    """
    e = formats.element(element)
    rule = errors.choose_member("scale_rule", scale_rule, ScaleRule)
    a = max((v.magnitude for v in map(_exact, values) if v.kind == "finite"), default=Fraction(0))
    if a == 0:
        return 0
    exponent = _floor_log2(a)
    f = a / _two_to(exponent)
    element_max = decode_exact(_layout(e).largest, e).magnitude
    s = exponent - _floor_log2(element_max)
    s += {
        ScaleRule.FLOOR: False,
        ScaleRule.CEIL: f > 1,
        ScaleRule.EVEN: f >= 2 - _two_to(-(e.mantissa_bits + 1)),
        ScaleRule.RCEIL: a > element_max * _two_to(s),
        ScaleRule.HALF_UP: f >= Fraction(7, 4),
        ScaleRule.FLOOR_PLUS_ONE: True,
    }[rule]
    return min(max(s, -127), 127) + _BIAS


def _float_format(dtype: Any) -> ElementFormat:
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    return FLOATS[errors.choose("dtype", name, tuple(FLOATS))]


def _float_array(x: Any) -> Array:
    array: Array = np.asarray(x)
    errors.require_type(array.dtype.name in FLOATS, "x", f"an array of {errors.joined(FLOATS)}", array.dtype.name)
    return array


def _from_bits(bits: Sequence[int], e: ElementFormat) -> Array:
    """A float array with exactly these bit patterns."""
    dtype = np.dtype(e.name)
    return np.array(bits, f"uint{8 * dtype.itemsize}").view(dtype)


class _Blocks:
    """How an array divides: `counts` is the shape of the scales; iterating gives (scale index, element index)."""

    def __init__(self, shape: tuple[int, ...], blocks: Sequence[int] | None, format: MXFormat) -> None:
        if blocks is None:
            blocks = (1,) * (len(shape) - 1) + (format.block,) * (len(shape) > 0)
        errors.require(len(blocks) == len(shape), "blocks", f"one block length for each of {len(shape)} axes", blocks)
        self.lengths = tuple(errors.positive_integer("blocks", b) for b in blocks)
        self.counts = tuple(math.ceil(Fraction(n, b)) for n, b in zip(shape, self.lengths, strict=True))

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
        for place in np.ndindex(*self.counts):
            yield place, (*(slice(i * b, (i + 1) * b) for i, b in zip(place, self.lengths, strict=True)), ...)

    def check(self, argument: str, array: Any) -> Array:
        result: Array = np.asarray(array)
        errors.require(result.shape == self.counts, argument, f"of shape {self.counts}, one a block", result.shape)
        return result


@dataclass(frozen=True, eq=False)
class Quantized:
    """A quantized array: element codes, one scale code per block, and one float16 offset per block if asymmetric."""

    codes: Array
    scales: Array
    offsets: Array | None = None


def quantize(
    x: Any,
    format: str | MXFormat,
    *,
    blocks: Sequence[int] | None = None,
    rounding: str = "rne",
    scale_rule: str = "floor",
    overflow: str = "saturate",
    nonfinite: str = "block",
    scales: Any = None,
    offset: str | None = None,
    offset_range: str = "exact",
    random_bits: Any = None,
    sr_bits: int = 30,
) -> Quantized:
    """Convert an array to MX: for each block a shared scale, then each element divided by it and rounded once.

    (OCP MX v1.0 section 6.3.) `nonfinite` says what NaN and Inf do; the default makes the whole block NaN. With
    ``offset="float16"`` a block is centred first: O is its mid-range in float16, and the differences x - O are what is
    scaled and encoded. `scales` replaces the rule by the caller's codes; 255 among them makes a NaN block.
    """
    array, fmt = _float_array(x), formats.get(format)
    e, wide = fmt.element, _FLOAT64 if array.dtype == np.float64 else _FLOAT32
    mode = errors.choose_member("rounding", rounding, Rounding)
    on_overflow = errors.choose_member("overflow", overflow, Overflow)
    policy = errors.choose_member("nonfinite", nonfinite, Nonfinite)
    errors.choose_member("scale_rule", scale_rule, ScaleRule)
    half = errors.choose_member("offset_range", offset_range, OffsetRange).is_half
    centred = offset is not None and errors.choose("offset", offset, ("float16",)) == "float16"

    for index, v in np.ndenumerate(array):
        found = "NaN" if math.isnan(v) else "Inf"
        if policy.by_error and not math.isfinite(v):
            raise errors.nonfinite("x", index, "finite,", found)
        if policy.by_element and math.isnan(v) and e.specials == "none":
            raise errors.nonfinite("x", index, f"free of NaN, which {e.name} cannot express,", found)

    division = _Blocks(array.shape, blocks, fmt)
    given = None if scales is None else division.check("scales", scales)
    words: Array = np.full(array.shape, None) if random_bits is None else np.asarray(random_bits)
    errors.require(words.shape == array.shape, "random_bits", f"of shape {array.shape}", words.shape)
    _random(mode, None if random_bits is None else 0, sr_bits)  # the checks hold for an empty array too

    codes, out_scales = np.zeros(array.shape, np.uint8), np.zeros(division.counts, np.uint8)
    offsets = np.zeros(division.counts, np.float16)
    for place, where in division:
        values = [_exact(float(v)) for v in array[where].flat]
        randoms = [_random(mode, word, sr_bits) for word in words[where].flat]
        finite = [v.number for v in values if v.kind == "finite"]
        scale = None if given is None else errors.integer("scales", given[place], 0, 255)
        if scale == _SCALE_NAN or (policy.by_block and len(finite) < len(values)):
            out_scales[place] = _SCALE_NAN
            continue  # codes and offset stay 0
        if centred and finite:
            low, high = min(finite), max(finite)
            centre = _round(_exact((high + low) / 2), _FLOAT16, overflow=Overflow.SATURATE)
            offsets[place] = _from_bits([centre], _FLOAT16)[0]
            minus_o = _exact(-float(offsets[place]))
            values = [_to(_plus(v, minus_o), wide) if v.kind == "finite" else v for v in values]
            finite = [(high - low) / 2] if half else [v.number for v in values if v.kind == "finite"]
        if scale is None:
            scale = shared_scale(finite, e, scale_rule=scale_rule)
        out_scales[place] = scale
        scaled = [_scaled(v, _BIAS - scale) for v in values]
        bits = [_round(v, e, mode, on_overflow, r, sr_bits) for v, r in zip(scaled, randoms, strict=True)]
        codes[where] = np.array(bits, np.uint8).reshape(codes[where].shape)
    return Quantized(codes, out_scales, offsets if centred else None)


def dequantize(
    codes: Any,
    scales: Any,
    format: str | MXFormat,
    *,
    blocks: Sequence[int] | None = None,
    dtype: Any = "float32",
    offsets: Any = None,
) -> Array:
    """Each element times its block's scale (plus the block's offset), exactly, then rounded RNE once to `dtype`."""
    fmt, target, codes = formats.get(format), _float_format(dtype), np.asarray(codes)
    division = _Blocks(codes.shape, blocks, fmt)
    scales = division.check("scales", scales)
    offsets = None if offsets is None else division.check("offsets", offsets)
    result = np.zeros(codes.shape, target.name)
    for place, where in division:
        o = None if offsets is None else _exact(float(offsets[place]))
        exact = [_meaning(decode_exact(code, fmt.element), scales[place], o) for code in codes[where].flat]
        result[where] = _from_bits([_round(v, target) for v in exact], target).reshape(result[where].shape)
    return result


def fake_quantize(x: Any, format: str | MXFormat, *, blocks: Sequence[int] | None = None, **options: Any) -> Array:
    """`quantize`, then `dequantize` into the dtype of x (narrowing by RNE, overflow to Inf). Same keywords."""
    q = quantize(x, format, blocks=blocks, **options)
    return dequantize(q.codes, q.scales, format, blocks=blocks, dtype=np.asarray(x).dtype, offsets=q.offsets)


@dataclass(frozen=True, eq=False)
class Blocked:
    """A quantized vector: codes in one dimension, a scale for each `block` of them, perhaps offsets."""

    codes: Array
    scales: Array
    format: str | MXFormat
    block: int
    offsets: Array | None = None

    def parts(self) -> Iterator[tuple[int, Exact | None, list[Exact]]]:
        """For each block its scale code, its offset and its elements P, unscaled."""
        fmt = formats.get(self.format)
        division = _Blocks(self.codes.shape, (self.block,), fmt)
        scales = division.check("scales", self.scales)
        offsets = None if self.offsets is None else division.check("offsets", self.offsets)
        for place, where in division:
            o = None if offsets is None else _exact(float(offsets[place]))
            yield int(scales[place]), o, [decode_exact(code, fmt.element) for code in self.codes[where]]


def _vector(x: Array | Blocked) -> list[Exact]:
    """The exact values of an operand."""
    if isinstance(x, Blocked):
        return [_meaning(p, scale, o) for scale, o, elements in x.parts() for p in elements]
    array = _float_array(x)
    errors.require(array.ndim == 1, "x", "one-dimensional", array.shape)
    return [_exact(float(v)) for v in array]


def _exact_dot(a: Iterable[Exact], b: Iterable[Exact]) -> Exact:
    """The sum of the products, exactly, from +0. NaN, 0 * Inf or Infs of both signs make NaN; else an Inf stays."""
    total = _ZERO
    for p, q in zip(a, b, strict=True):
        total = _plus(total, _times(p, q))
    return total


def dot(a: Array | Blocked, b: Array | Blocked, *, accumulate: str = "exact", out_dtype: str = "float32") -> Any:
    """The dot product of two vectors with its accumulation named; a NumPy scalar of `out_dtype`.

    `exact`: exact values, exact sum, one RNE to float32. `block`: per block one rounding of 2^(sa+sb-254) times the
    exact sum of element products, then float32 additions in block order. `sequential`: operands in float32, one fused
    multiply-add (one rounding) per element in order. Any other `out_dtype` rounds the float32 result once more.
    """
    how = errors.choose_member("accumulate", accumulate, (Accumulate.EXACT, Accumulate.BLOCK, Accumulate.SEQUENTIAL))
    target = FLOATS[errors.choose("out_dtype", out_dtype, ("float32", "bfloat16", "float16"))]
    u, v = _vector(a), _vector(b)
    errors.require(len(u) == len(v), "b", f"of length {len(u)}", len(v))
    total = _ZERO
    match how:
        case Accumulate.EXACT:
            total = _to(_exact_dot(u, v), _FLOAT32)
        case Accumulate.SEQUENTIAL:
            for p, q in zip(u, v, strict=True):
                total = _to(_plus(_times(_to(p, _FLOAT32), _to(q, _FLOAT32)), total), _FLOAT32)
        case Accumulate.BLOCK:
            if not isinstance(a, Blocked) or not isinstance(b, Blocked) or a.block != b.block:
                raise ValueError("Argument 'accumulate' must not be 'block' unless both operands have the same blocks.")
            errors.require(a.offsets is None and b.offsets is None, "accumulate", "'block' without offsets", accumulate)
            for (scale_a, _, p_a), (scale_b, _, p_b) in zip(a.parts(), b.parts(), strict=True):
                nan = _SCALE_NAN in (scale_a, scale_b)
                term = _NAN if nan else _scaled(_exact_dot(p_a, p_b), scale_a + scale_b - 254)
                total = _to(_plus(total, _to(term, _FLOAT32)), _FLOAT32)
        case _:
            raise NotImplementedError(f"Accumulate {str(how)!r} is not handled here.")
    return _from_bits([_round(total, target)], target)[0]


def matmul(
    a: Array | Sequence[Blocked], b: Array | Sequence[Blocked], *, accumulate: str = "exact", out_dtype: str = "float32"
) -> Array:
    """Every `dot` of a row of a with a column of b: 2-D arrays, or the rows of a and the columns of b as `Blocked`."""
    columns = b.T if isinstance(b, np.ndarray) else b
    result = np.zeros((len(a), len(columns)), out_dtype)
    for i, j in np.ndindex(*result.shape):
        result[i, j] = dot(a[i], columns[j], accumulate=accumulate, out_dtype=out_dtype)
    return result


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 (Salmon et al. 2011): four random 32-bit words, a pure function of four counter and two key words.

    Each of ten rounds multiplies two counter words into 64-bit products and mixes their halves with the others and
    the key, which advances by a fixed step from round to round.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def random_words(shape: int | tuple[int, ...], *, seed: int, stream: int = 0) -> Array:
    """The words stochastic rounding uses for an array of this shape: they depend on seed, stream and index alone.

    Word i in C order is word i mod 4 of Philox at counter (i // 4 low, high, stream low, high), key the seed's halves.
    """
    seed_high, seed_low = divmod(errors.integer("seed", seed, 0, 2**64 - 1), 2**32)
    stream_high, stream_low = divmod(errors.integer("stream", stream, 0, 2**64 - 1), 2**32)
    result: Array = np.zeros(shape, np.uint32)
    for i in range(result.size):
        group_high, group_low = divmod(i // 4, 2**32)
        result.flat[i] = philox4x32((group_low, group_high, stream_low, stream_high), (seed_low, seed_high))[i % 4]
    return result
