"""Tests that `check` reports subtly wrong kernels correctly, and that unusual right kernels pass.

The wrong kernels return wrong numbers, shapes, types, widths or orders, or write into their
arguments.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance import ConformanceError, check
from mxnum.interop.swizzle import swizzle_scales

E2M1 = {"format": "mxfp4_e2m1", "operation": "encode"}
E4M3 = {"format": "mxfp8_e4m3", "operation": "encode"}
SR = {**E2M1, "rounding": "sr", "sr_bits": 8, "level": 2, "count": 3000}
SCALE = {"format": "mxfp4_e2m1", "operation": "scale"}
BLOCKS = {"format": "mxfp4_e2m1"}
VALUES = {"format": "mxfp4_e2m1", "operation": "dequantize"}
DOT = {"format": "mxfp4_e2m1", "operation": "dot"}
EXACT, SEQUENTIAL = ({**DOT, "accumulate": how} for how in ("exact", "sequential"))
INT8 = {"format": "mxint8", "operation": "encode"}


def e2m1(x, **modes):
    return mx.encode(x, "e2m1", **modes)


def e4m3(x, **modes):
    return mx.encode(x, "e4m3", **modes)


def scales(x, **modes):
    return mx.shared_scale(x, "mxfp4_e2m1", **modes)


def blocks(x, **modes):
    q = mx.quantize(x, "mxfp4_e2m1", **modes)
    return q.codes.copy(), q.scales.copy()


def values(codes, of_scales):
    return mx.MXArray.from_parts(codes, of_scales, mx.MXFormat("e2m1", block=1)).dequantize()


def dots(a, a_scales, b, b_scales, **modes):
    left = mx.MXArray.from_parts(a[:, None], a_scales[:, None], "mxfp4_e2m1")
    right = mx.MXArray.from_parts(b[:, None], b_scales[:, None], "mxfp4_e2m1")
    return mx.matmul(left, right.transpose(0, 2, 1), **modes)[:, 0, 0]


def drawn(x, words, **modes):
    return e2m1(x, rounding="sr", random_bits=words, sr_bits=8, **modes)


def changed(kernel, change):
    """Return a quantizer that applies `change` to the codes and scales that `kernel` returns."""
    return lambda *arguments: change(*kernel(*arguments))


def with_codes(change):
    return changed(blocks, lambda codes, of_scales: (change(codes), of_scales))


def at(kernel, place, change):
    """Return a kernel that applies `change` to the answer of `kernel` to case number `place`."""

    def one_wrong(*arguments):
        result = kernel(*arguments).copy()
        if len(result) > place:
            result[place] = change(result[place])
        return result

    return one_wrong


def by_element(code_of_nan):
    def quantize(x):
        nan = np.isnan(x)
        codes, of_scales = blocks(np.where(nan, np.float32(0), x), nonfinite="element")
        codes[nan] = np.broadcast_to(code_of_nan, x.shape)[nan]
        return codes, of_scales

    return quantize


def flushed(y):
    return np.where(np.abs(y) < np.float32(2) ** -126, np.copysign(np.float32(0), y), y)


def without_scale_zero(codes, of_scales):
    return np.where(np.repeat(of_scales == 0, 32, axis=1), np.uint8(0), codes)


def signed(codes, of_scales):
    with np.errstate(all="ignore"):
        table = np.array(mx.formats.element("e2m1").values(), np.float32)
        return np.ldexp(table[codes], of_scales.view(np.int8).astype(int) - 127)


def normal(codes):
    """Return E2M1 codes in which ±0.5 is replaced by zero."""
    return np.where(codes & 6, codes, codes & 8)


def compared_otherwise(rule, fraction, step):
    """Return a kernel with wrong scales for blocks whose maximum is at the rule's threshold.

    A maximum is at the threshold if its mantissa is 2 * `fraction`.
    """

    def wrong(x):
        of_scales = scales(x, scale_rule=rule).astype(int)
        largest = np.abs(x).max(axis=1)
        with np.errstate(all="ignore"):
            found, exponent = np.frexp(largest)
        at = np.isfinite(largest) & (found == fraction)
        of_scales[at, 0] = np.clip(exponent[at] - 3 + step, -127, 127) + 127
        return of_scales

    return wrong


def from_five(x):
    """Round 5 to 6, like a kernel that compares with the midpoint by >= instead of >."""
    codes, of_scales = blocks(x)
    y = np.ldexp(np.abs(x).astype(float), 127 - of_scales.astype(int))
    return np.where(y == 5, codes | 1, codes), of_scales


def from_a_table(x):
    table, of_scales = np.array(mx.formats.element("e2m1").values()), scales(x)
    y = np.ldexp(x.astype(float), 127 - of_scales.astype(int))
    return np.abs(np.where(of_scales == 255, 0, y)[..., None] - table).argmin(axis=-1), of_scales


def most_significant_first(x):
    q = mx.quantize(x, "mxfp6_e3m2")
    bits = (q.codes[:, :, None] >> np.arange(6)[::-1]) & 1
    return np.packbits(bits.reshape(len(x), -1).astype(np.uint8), axis=1), q.scales


def swap(codes):
    return codes.reshape(len(codes), -1, 2)[:, :, ::-1].reshape(codes.shape)


def last_bit(codes):
    codes[:, -1] ^= 1
    return codes


def int8(y):
    return np.clip(y, -127, 127).astype(np.int8).view(np.uint8)


def odd(y):
    y = np.clip(y, -1000, 1000)
    return np.where(y - np.floor(y) == 0.5, 2 * np.floor(np.floor(y) / 2) + 1, np.rint(y))


def of_int8(x):
    return mx.shared_scale(x, "mxint8").astype(int)


def scaled(y, of_scales):
    """Multiply numbers by their scales in float32; the scale 0xFF gives NaN."""
    with np.errstate(all="ignore"):
        return (y * np.where(of_scales == 255, np.nan, np.exp2(of_scales - 127.0))).astype(np.float32)


def times(codes, factors):
    """Multiply the values of E2M1 codes by factors.

    A product is NaN if the factor is NaN, or if the factor is infinite and the element is zero.
    """
    with np.errstate(all="ignore"):
        return (np.array(mx.formats.element("e2m1").values())[codes] * factors).astype(np.float32)


def pairwise(a, a_scales, b, b_scales):
    first, second, third, fourth = (
        dots(a[:, 32 * i : 32 * i + 32], a_scales[:, i : i + 1], b[:, 32 * i : 32 * i + 32], b_scales[:, i : i + 1])
        for i in range(4)
    )
    with np.errstate(all="ignore"):
        return (first + second) + (third + fourth)


def in_order(dtype, a, a_scales, b, b_scales):
    """Return dot products of E2M1 blocks, with every step rounded to `dtype`."""
    table = np.array(mx.formats.element("e2m1").values())
    with np.errstate(all="ignore"):
        left, right = (
            (table[codes] * np.repeat(np.where(s == 255, np.nan, np.exp2(s - 127.0)), 32, axis=1)).astype(dtype)
            for codes, s in ((a, a_scales), (b, b_scales))
        )
        return (np.cumsum(left * right, axis=1)[:, -1] + dtype(0)).astype(np.float32)


def in_blocks(a, a_scales, b, b_scales):
    """Return dot products in E4M3: add up each block in float32, then add the blocks' sums."""
    table, total = np.array(mx.formats.element("e4m3").values(), np.float32), np.float32(0)
    with np.errstate(all="ignore"):
        for i in range(4):
            found = np.float32(0)
            for j in range(32 * i, 32 * i + 32):
                found = found + table[a[:, j]] * table[b[:, j]]
            exponent = a_scales[:, i].astype(int) + b_scales[:, i] - 254
            isnan = (a_scales[:, i] == 255) | (b_scales[:, i] == 255)
            total = total + np.where(isnan, np.nan, np.ldexp(found.astype(float), exponent)).astype(np.float32)
    return total


CEIL, RCEIL, EVEN = ({**SCALE, "scale_rule": rule} for rule in ("ceil", "rceil", "even"))
E5M2, E3M2 = {**E4M3, "format": "mxfp8_e5m2"}, {"format": "mxfp6_e3m2"}

#: Name of the mistake, kernel, arguments of `check`, and a pattern that the error must match.
WRONG = [
    # Bits, types and shapes
    ("upper nibble", lambda x: e2m1(x) | 0xA0, E2M1, "right codes in the lowest 4 bits, with other bits above them.*0xA4, which does not fit in 4"),
    ("plus 256", lambda x: e2m1(x).astype(int) + 256, E2M1, "got 0x104, which does not fit in 4 bits"),
    ("minus 256", lambda x: e2m1(x).astype(int) - 256, E2M1, "got -252, which is negative"),
    ("signed", lambda x: (e2m1(x) ^ 8).astype(np.int8) - 8, E2M1, "are what writing codes as signed numbers gives"),
    ("extended", lambda x: np.where(e2m1(x) & 8, e2m1(x) | 0xF0, e2m1(x)), E2M1, "with their sign extended to 8 bits"),
    ("huge", lambda x: e2m1(x).astype(np.uint64) + 2**63, E2M1, "does not fit in 4 bits"),
    ("int8 for e4m3", lambda x: e4m3(x).view(np.int8), E4M3, "which is negative"),
    ("floats", lambda x: e2m1(x).astype(float), E2M1, "must be an array of integers or float4_e2m1fn, not 'float64'"),
    ("bools", lambda x: e2m1(x) > 0, E2M1, "must be an array of integers or float4_e2m1fn, not 'bool'"),
    ("objects", lambda x: e2m1(x).astype(object), E2M1, "must be an array, not objects"),
    ("another float8", lambda x: x.astype(ml_dtypes.float8_e5m2), E4M3, "or float8_e4m3fn, not 'float8_e5m2'"),
    ("none", lambda x: None, E2M1, "must be an array, not NoneType"),
    ("generator", lambda x: (c for c in e2m1(x)), E2M1, "must be an array, not generator"),
    ("uneven", lambda x: [[1], [1, 2]], E2M1, "must be an array, not a list of uneven rows"),
    ("scalar", lambda x: e2m1(x)[0], E2M1, r"must be of shape \(5640,\) \(or \(2820,\), packed in bytes\), not \(\)"),
    ("text", lambda x: "codes", E2M1, "must be an array of integers or float4_e2m1fn, not 'str"),
    ("column", lambda x: e2m1(x).reshape(-1, 1), E2M1, r"must be of shape \(5640,\) .*, not \(5640, 1\)"),
    ("transposed codes", with_codes(np.transpose), BLOCKS, r"must be of shape \(845, 32\) .*, not \(32, 845\)"),
    ("scales in a row", changed(blocks, lambda c, s: (c, s.T)), BLOCKS, r"of shape \(845,\) or \(845, 1\), not \(1, 845\)"),
    ("scales as powers", changed(blocks, lambda c, s: (c, np.exp2(s - 127.0))), BLOCKS, "integers or float8_e8m0fnu, not"),
    ("scales first", changed(blocks, lambda c, s: (s, c)), BLOCKS, r"must return \(codes, scales\), not \(scales, codes\)"),
    ("codes alone", lambda x: blocks(x)[0], BLOCKS, r"must return \(codes, scales\), not ndarray"),
    ("float64", lambda c, s: values(c, s).astype(float), VALUES, "must be an array of float32, not 'float64'"),
    ("int32 bits", lambda c, s: values(c, s).view(np.int32), VALUES, "must be an array of float32, not 'int32'"),
    ("values in a column", lambda c, s: values(c, s)[:, None], VALUES, r"must be of shape \(4096,\), not \(4096, 1\)"),
    # Elements
    ("rna", lambda x: e2m1(x, rounding="rna"), E2M1, "All 8 wrong answers are what rounding rna gives, and so are the 56"),
    ("rtz", lambda x: e2m1(x, rounding="rtz"), E2M1, "are what rounding rtz gives"),
    ("minus zero", lambda x: np.where(e2m1(x) == 0, 8, e2m1(x)), E2M1, "got 0x8 .-0., want 0x0 .0., the sign of zero"),
    ("a table", from_a_table, BLOCKS, "a table search that takes the first of two equally near values gives"),
    ("no signs", lambda x: e2m1(abs(x)), E2M1, "are what losing all signs gives"),
    ("flushed", lambda x: np.where(e2m1(x) & 7 < 2, e2m1(x) & 8, e2m1(x)), E2M1, "what flushing subnormal results to zero"),
    ("rna, flushed", lambda x: np.where(e2m1(x, rounding="rna") & 7 < 2, e2m1(x) & 8, e2m1(x, rounding="rna")), E2M1,
     "are what flushing subnormal results to zero under rounding rna gives"),
    ("floor(x + 1/2)", lambda x: int8(np.floor(x.astype(float) * 64 + 0.5)), INT8, "with ties upward .floor.x . 1/2.. gives"),
    ("ties to odd", lambda x: int8(odd(x.astype(float) * 64)), INT8, "are what rounding to nearest with ties to odd gives"),
    ("cut", lambda x: e2m1((x.view(np.uint32) >> 16 << 16).view(np.float32)), E2M1, "what truncating to bfloat16 first"),
    ("bfloat16 first", lambda x: e2m1(x.astype(ml_dtypes.bfloat16)), E2M1, "are what rounding to bfloat16 first gives"),
    ("bit 0 of codes at 0", lambda x: e2m1(x) & 14, E2M1, "All 2656 wrong answers are the right codes with bit 0 stuck at 0, "),
    ("one of 5640", at(e2m1, 4259, lambda c: c ^ 1), E2M1, " 1 wrong.*case 4260 "),
    ("nothing", lambda x: np.zeros(len(x), np.uint8), E2M1, "are what a kernel that returns only zeros gives"),
    ("NaN as largest", lambda x: np.where(np.isnan(x), 0x7E, e4m3(x)), E4M3, r"NaN.*got 0x7E \(448\), want 0x7F \(nan\)"),
    ("NaN as infinity", lambda x: np.where(np.isnan(x), 0x7C, mx.encode(x, "e5m2")), E5M2, "got 0x7C .inf., want 0x7F"),
    ("one sign saturates", lambda x: np.where(x > 0, e4m3(x, overflow="ieee"), e4m3(x)), E4M3,
     "answers follow the choice overflow, but [0-9]+ other answers could follow this choice and do not, so the"),
    ("NaN as anything", by_element(3), BLOCKS, r"NaN became 0x3 \d+ times.*got 0x3 .1.5., want one of: the largest"),
    ("NaN mixed", by_element(np.where(np.arange(32) % 2, 7, 0)), BLOCKS, r"NaN became 0x0 \d+ times, 0x7 \d+ times"),
    ("rtz, reading no subnormals", lambda x: blocks(flushed(x), rounding="rtz"), BLOCKS,
     "what reading subnormal inputs as zero under rounding rtz gives"),
    ("rna, swapped", changed(lambda x: blocks(x, rounding="rna"), lambda c, s: (swap(c), s)), BLOCKS,
     "the right codes with the two nibbles of each byte swapped, after rounding rna, and so are"),
    ("ceil, but the last", lambda x: scales(np.where(np.arange(32) < 31, x, x[:, :1]), scale_rule="ceil"), SCALE,
     "what a scale computed from all elements but the last under scale rule ceil gives"),
    # Random bits
    ("highest bits", lambda x, w: drawn(x, w >> 24), SR, "are what random bits from the top of each random word gives"),
    ("greater", lambda x, w: drawn(x, (w & 255) - ((w & 255) > 0)), SR, "`>` in place of `>=` for fraction plus random bits"),
    ("complement", lambda x, w: drawn(x, 255 - (w & 255)), SR, "what the complement of the random bits gives"),
    ("no random bits", lambda x, w: e2m1(x), SR, "are what rounding rne gives"),
    ("one word for a block", lambda x, w: blocks(x, rounding="sr", random_bits=w[:, :1] + 0 * w, sr_bits=8),
     {**BLOCKS, "rounding": "sr", "sr_bits": 8}, "the random word of the first element for a whole block gives"),
    # Scales
    ("rceil, >=", compared_otherwise("rceil", 0.75, 1), RCEIL, "All .* wrong scales are what `>=` in place of `>` in scale rule rceil"),
    ("ceil, >=", compared_otherwise("ceil", 0.5, 1), CEIL, "All .* wrong scales are what `>=` in place of `>` in scale rule ceil"),
    ("even, >", compared_otherwise("even", 0.875, 0), EVEN, "All .* wrong scales are what `>` in place of `>=` in scale rule even"),
    ("ceil for rceil", lambda x: scales(x, scale_rule="ceil"), RCEIL, "All .* wrong scales are what scale rule ceil"),
    ("from 0x01", lambda x: np.maximum(scales(x), 1), SCALE, "are what a smallest scale code of 0x01 gives"),
    ("to 0xFC", lambda x: np.where(scales(x, scale_rule="ceil") == 253, 252, scales(x, scale_rule="ceil")), CEIL,
     "Wrong by scale code: 0xFD: "),
    ("bit 0 of scales at 1", lambda x: scales(x) | 1, SCALE, "All 2905 wrong scales are the right scales with bit 0 stuck at 1, "),
    ("256 for NaN", lambda x: np.where(scales(x) == 255, 256, scales(x).astype(int)), SCALE, "0x100, which does not fit"),
    ("all but the last", lambda x: scales(x[:, :-1]), SCALE, "what a scale computed from all elements but the last gives"),
    ("the positive ones", lambda x: scales(np.where(np.signbit(x), 0, x)), SCALE, "a scale computed from the positive elements alone gives"),
    ("zero at scale 1", at(scales, 0, lambda s: s * 0 + 127), SCALE, "\n1 answers follow the choice zero_scale, but [1-9]"),
    ("to 0xFD", lambda x: np.minimum(of_int8(x), 253) + 2 * (of_int8(x) == 255), {**SCALE, "format": "mxint8"},
     "All .* wrong scales are what a largest scale code of 0xFD gives"),
    # Blocks
    ("last element", with_codes(last_bit), BLOCKS, "Wrong codes by index in the block: 31: "),
    ("nibbles", with_codes(swap), BLOCKS, "the right codes with the two nibbles of each byte swapped, and so are the"),
    ("packed, nibbles", with_codes(lambda c: c[:, ::2] << 4 | c[:, 1::2]), BLOCKS, "the two nibbles of each byte swapped"),
    ("packed, halves", with_codes(lambda c: c[:, :16] | c[:, 16:] << 4), BLOCKS, "its two halves interleaved"),
    ("even and odd", with_codes(lambda c: c.reshape(-1, 16, 2).swapaxes(1, 2).reshape(-1, 32)), BLOCKS, "with even indices before odd indices"),
    ("reversed", with_codes(lambda c: c[:, ::-1]), BLOCKS, "the right codes of each block in reverse"),
    ("bytes reversed", with_codes(lambda c: swap(c[:, ::-1])), BLOCKS, "the right codes of each block with its bytes in rev"),
    ("words reversed", with_codes(lambda c: swap(c.reshape(-1, 8)[:, ::-1].reshape(-1, 32))), BLOCKS, "each 4-byte word in"),
    ("bits from the top", most_significant_first, E3M2, "the right codes packed from the highest bit of each byte"),
    ("codes of another rule", lambda x: (blocks(x, scale_rule="ceil")[0], scales(x)), BLOCKS, r"\A(?!.*are what).* [1-9]\d* wrong"),
    ("another rule", lambda x: blocks(x, scale_rule="even"), BLOCKS, "wrong scales are what scale rule even gives"),
    ("from 5", from_five, BLOCKS, r"\nWrong codes: -6 .0xF. for -4 .0xE.: \d+, 6 .0x7. for 4 .0x6.: \d+\n"),
    ("bit 2 of codes at 1", with_codes(lambda c: c | 4), BLOCKS, "wrong codes are, .* the right codes with bit 2 stuck at 1"),
    ("bit 7 of scales at 0", changed(blocks, lambda c, s: (c, s & 127)), BLOCKS,
     "All 324 wrong scales are the right scales with bit 7 stuck at 0, .*Wrong codes: .*All 4 blocks of wrong codes in the cl"),
    ("rna in blocks", lambda x: blocks(x, rounding="rna"), BLOCKS, "are, given the scales in the answers, what rounding rna"),
    # Values and sums
    ("values flushed", lambda c, s: flushed(values(c, s)), VALUES, "are what flushing subnormal results to zero gives"),
    ("no scale 0", lambda c, s: np.where(s == 0, np.copysign(np.float32(0), values(c, s)), values(c, s)), VALUES,
     "are what reading scale 0x00 as zero gives"),
    ("no NaN", lambda c, s: values(c, np.minimum(s, 254)), VALUES, "are what reading scale 0xFF as 2.127 gives"),
    ("half", lambda c, s: values(c, np.where((s > 0) & (s < 255), s - 1, s)), VALUES, "are what a scale code that is 1 lower"),
    ("bias 128", lambda c, s: times(c, np.where(s == 255, np.nan, np.exp2(s - 128.0))), VALUES, "All 35.* are what halving all values gives"),
    ("exponent bits", lambda c, s: times(c, (s.astype(np.uint32) << 23).view(np.float32)), VALUES,
     "All 28 wrong answers are what a scale code as the exponent bits of a float32"),
    ("infinity", lambda c, s: times(c, np.where(s == 255, np.inf, np.exp2(s - 127.0))), VALUES, "0xFF as infinity gives"),
    ("no signs in values", lambda c, s: abs(values(c, s)), VALUES, "are what losing all signs gives"),
    ("unsigned", lambda c, s: scaled(c / 64, s), {**VALUES, "format": "mxint8"}, "are what codes read as unsigned gives"),
    ("sign and magnitude", lambda c, s: scaled((c & 127) * np.where(c > 127, -1.0, 1.0) / 64, s),
     {**VALUES, "format": "mxint8"}, "are what sign and magnitude in place of two's complement gives"),
    ("signed scales", signed, VALUES, "are what a scale code read as a signed byte gives"),
    ("sums", lambda *a: dots(*a, accumulate="exact"), DOT, "are what accumulation exact gives"),
    ("backwards", lambda *a: dots(*(part[:, ::-1] for part in a)), DOT, "All \\d+ wrong answers are what sums in reverse order"),
    ("a tree", lambda *a: pairwise(*a), DOT, "All \\d+ wrong answers are what sums of blocks added in pairs .a tree. gives"),
    ("float64", lambda *a: in_order(np.float64, *a), EXACT, "are what sums in float64, in order gives"),
    ("no fma", lambda *a: in_order(np.float32, *a), SEQUENTIAL, "in float32 without fused multiply-add, in order gives"),
    ("float32 in blocks", in_blocks, {**DOT, "format": "mxfp8_e4m3"}, "are what sums within each block in float32, in order"),
    ("sums flushed", lambda *a: flushed(dots(*a)), DOT, "are what flushing subnormal results to zero gives"),
    ("sums flushed to +0", lambda *a: flushed(dots(*a)) + np.float32(0), DOT, "subnormal results to .0 gives"),
    ("small codes in sums", lambda a, s, b, t: dots(normal(a), s, normal(b), t), DOT,
     "are what reading subnormal codes as zero gives"),
    ("no scale 0 in sums", lambda a, s, b, t: dots(without_scale_zero(a, s), s, without_scale_zero(b, t), t), DOT,
     "are what reading scale 0x00 as zero gives"),
    ("from scale 1 in sums", lambda a, s, b, t: dots(a, np.maximum(s, 1), b, np.maximum(t, 1)), DOT,
     "are what reading scale 0x00 as 2.-126 gives"),
    ("no NaN in sums", lambda a, s, b, t: dots(a, np.minimum(s, 254), b, np.minimum(t, 254)), DOT,
     "are what reading scale 0xFF as 2.127 gives"),
    ("scales of a alone", lambda a, s, b, t: dots(a, s, b, s), DOT, "in place of the scales of b"),
]  # fmt: skip


#: The fast tier checks every second wrong kernel, and the full tier all of them.
CASES = [pytest.param(*w[1:], id=w[0], marks=pytest.mark.full if i % 2 else ()) for i, w in enumerate(WRONG)]


@pytest.mark.parametrize(("kernel", "task", "says"), CASES)
def test_a_wrong_kernel_is_named(kernel, task, says):
    with pytest.raises((ConformanceError, TypeError, ValueError)) as caught:
        check(kernel, **task, shrink=False)
    text = str(caught.value)
    assert re.search(says, text, re.S), text
    if isinstance(caught.value, ConformanceError):
        assert caught.value.report.bugs > 0


KERNELS = {"encode": e2m1, "quantize": blocks, "scale": scales, "dequantize": values, "dot": dots}


@pytest.mark.parametrize("operation", KERNELS)
def test_a_kernel_that_writes_into_its_arguments_is_judged_by_what_it_gives(operation):
    """Check that a kernel that writes into its arguments does not change the right answers."""
    task = {"operation": operation, "format": "mxfp4_e2m1", "shrink": False}

    def wipe(*arguments):
        answer = KERNELS[operation](*arguments)
        for array in arguments:
            array.fill(0)
        return answer

    def of_nothing(*arguments):
        for array in arguments:
            array.fill(0)
        return KERNELS[operation](*arguments)

    assert check(wipe, **task).is_equal
    with pytest.raises(ConformanceError, match=r" [1-9]\d* wrong"):
        check(of_nothing, **task)


BUFFER = np.zeros((8192, 32), np.uint8)


def into_a_buffer(x):
    BUFFER[: len(x)], of_scales = blocks(x)
    return BUFFER[: len(x)], of_scales


def read_only(x):
    codes = e2m1(x)
    codes.flags.writeable = False
    return codes


RIGHT = [
    ("wide", lambda x: e2m1(x).astype(np.int64), E2M1),
    ("big-endian codes", lambda x: e2m1(x).astype(">u2"), E2M1),
    ("a list", lambda x: e2m1(x).tolist(), E2M1),
    ("read only", read_only, E2M1),
    ("backwards in memory", lambda x: e2m1(x[::-1])[::-1], E2M1),
    ("the element's type", lambda x: e2m1(x).view(ml_dtypes.float4_e2m1fn), E2M1),
    ("packed", lambda x: e2m1(x)[::2] | e2m1(x)[1::2] << 4, E2M1),
    ("packed blocks", lambda x: (mx.quantize(x, "mxfp4_e2m1").pack(), scales(x)), BLOCKS),
    ("a buffer used again", into_a_buffer, BLOCKS),
    ("in Fortran order", with_codes(np.asfortranarray), BLOCKS),
    ("typed scales", changed(blocks, lambda c, s: [c, s.ravel().view(ml_dtypes.float8_e8m0fnu)]), BLOCKS),
    ("swizzled", changed(blocks, lambda c, s: (c, swizzle_scales(s))), {**BLOCKS, "scales": "swizzled"}),
    ("big-endian values", lambda c, s: values(c, s).astype(">f4"), VALUES),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "task"), [r[1:] for r in RIGHT], ids=[r[0] for r in RIGHT])
def test_an_odd_kernel_that_is_right_passes(kernel, task):
    assert check(kernel, **task).is_equal


def test_six_bits_packed_and_signed_integers():
    def packed(x):
        q = mx.quantize(x, "mxfp6_e3m2")
        return q.pack(), q.scales

    assert check(packed, format="mxfp6_e3m2").is_equal
    assert check(lambda x: mx.encode(x, "int8").view(np.int8), format="mxint8", operation="encode").is_equal
