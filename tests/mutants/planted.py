"""The planted mistakes: each has a change, its effect, and tests that should notice it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.engine import ENGINE
from tests.mutants.float_scales import FLOAT_SCALES
from tests.mutants.loops import LOOPS
from tests.mutants.products import PRODUCTS


@dataclass(frozen=True)
class Mutant:
    """A planted mistake, which replaces `old` by `new`; `old` must occur once in the file."""

    name: str
    #: The path of the file, relative to the root of the repository.
    file: str
    old: str
    new: str
    #: The effect of the mistake, in one sentence.
    wrong: str
    #: Tests of the fast tier (files, or tests in files). At least one of these tests must fail.
    killed_by: tuple[str, ...]


ARRAY, STATISTICS = "tests/array/test_mx_array.py", "tests/analysis/test_statistics.py"

MUTANTS = (
    # The Hadamard transform
    Mutant(
        "transform-loses-bits-unseen", "mxnum/engine/rotations/by_floats.py",
        "limit *= 4.0 * signs.size", "limit *= 2.0**-30",
        "Blocks whose sums float64 cannot hold exactly are not marked.",
        ("tests/engine/rotations/test_rotations.py",),
    ),
    Mutant(
        "transform-forgets-what-lies-below", "mxnum/engine/rotations/by_integers.py",
        "significand | (1 if below else 0)", "significand",
        "A sum whose magnitude is just above the midpoint of two numbers is rounded as a tie.",
        ("tests/engine/rotations/test_rotations.py",),
    ),
    # Arguments and dispatch
    Mutant(
        "wrong-length-of-packed-rows", "mxnum/layout.py",
        "return (length * bits + 7) // 8", "return length * bits // 8",
        "The last byte of a packed row is lost if codes fill only a part of the byte.",
        (f"{ARRAY}::test_packing_is_a_little_endian_bit_stream",),
    ),
    Mutant(
        "short-last-block-has-no-scale", "mxnum/layout.py",
        "return tuple(-(-length // block) for", "return tuple(length // block for",
        "A short last block has no scale of its own.",
        ("tests/test_layout.py",),
    ),
    Mutant(
        "axis-from-the-wrong-end", "mxnum/layout.py",
        "return errors.integer(\"axis\", axis, -rank, rank - 1) % rank",
        "return abs(errors.integer(\"axis\", axis, -rank, rank - 1)) % rank",
        "Negative axes are counted from the front.",
        ("tests/test_layout.py",),
    ),
    Mutant(
        "seed-without-stochastic-rounding", "mxnum/ops.py",
        'of_seed = "seed" if seed is not None else',
        'of_seed = "seed" if random_bits is not None and seed is not None else',
        "A seed without rounding='sr' is silently ignored.",
        ("tests/test_errors.py",),
    ),
    Mutant(
        "unknown-range-of-offsets", "mxnum/engine/request.py",
        "if asked.offset is None and used_range.is_half:", "if False:",
        "The argument offset_range is silently ignored if offset is left out.",
        ("tests/test_errors.py",),
    ),
    Mutant(
        "read-only-results", "mxnum/ops.py",
        "errors.require(part.flags.writeable, \"out\", \"writable\", \"a read-only array\")", "pass",
        "The parts of a read-only MXArray are written to.",
        (f"{ARRAY}::test_parts_that_are_read_only_are_not_written_to",),
    ),
    Mutant(
        "codes-with-high-bits", "mxnum/array/arguments.py",
        "errors.require(largest < 1 << bits,", "errors.require(largest <= 1 << bits,",
        "The smallest code that has too many bits is accepted.",
        ("tests/array/test_arguments.py", "tests/test_errors.py"),
    ),
    # Arrays
    Mutant(
        "equality-without-offsets", "mxnum/array/mx_array.py",
        "pairs = [*zip(parts_of(self), parts_of(other), strict=True), tuple(tensors)]",
        "pairs = [*zip(parts_of(self)[:2], parts_of(other)[:2], strict=True), tuple(tensors)]",
        "Arrays that differ only in their offsets compare as equal.",
        (f"{ARRAY}::test_equality_looks_at_everything",),
    ),
    Mutant(
        "equality-without-blocks", "mxnum/array/mx_array.py",
        "if self.format != other.format or self.blocks != other.blocks:", "if self.format != other.format:",
        "Arrays with different block shapes compare as equal if their codes and scales are equal.",
        (f"{ARRAY}::test_equality_looks_at_everything",),
    ),
    Mutant(
        "bytes-of-offsets", "mxnum/array/mx_array.py",
        "of_block = self.format.scale.bits // 8 + (0 if self.offsets is None else 2)",
        "of_block = self.format.scale.bits // 8",
        "The bytes of offsets are not counted.",
        (f"{ARRAY}::test_sizes",),
    ),
    Mutant(
        "transposed-blocks", "mxnum/array/mx_array.py",
        "or tuple(reversed(range(self.ndim)))", "or tuple(range(self.ndim))",
        "A transpose without axes does nothing.",
        (f"{ARRAY}::test_transposes_are_views",),
    ),
    # The definition
    Mutant(
        "scale-rule-ceil-bumps-powers-of-two", "mxnum/definition/scale.py",
        "ScaleRule.CEIL: (1 << width) + 1,", "ScaleRule.CEIL: 1 << width,",
        "The rule ceil doubles the scale of a block whose largest magnitude is a power of two.",
        ("tests/definition/test_scale.py",),
    ),
    Mutant(
        "scale-not-clamped-above", "mxnum/definition/scale.py",
        "select(code > LAST_SCALE, LAST_SCALE, code)", "select(code > LAST_SCALE + 1, LAST_SCALE, code)",
        "Blocks with very large float64 numbers get the scale code of NaN.",
        ("tests/definition/test_scale.py",),
    ),
    Mutant(
        "ties-to-odd", "mxnum/definition/pack.py",
        "(significand + (rest >> 1) + (kept & 1)) >> shift", "(significand + (rest >> 1) + 1 - (kept & 1)) >> shift",
        "Ties are rounded to the odd neighbour.",
        ("tests/definition/test_convert.py",),
    ),
    Mutant(
        "downward-overflow-of-rtp", "mxnum/definition/pack.py",
        "Rounding.RTP: (False, True),", "Rounding.RTP: (True, False),",
        "With rtp and IEEE overflow, positive overflow gives the largest number, and negative overflow infinity.",
        ("tests/definition/test_convert.py",),
    ),
    Mutant(
        "philox-one-round-less", "mxnum/definition/random.py",
        "_ROUNDS = 10", "_ROUNDS = 9",
        "Random words are not those of Philox4x32-10.",
        ("tests/definition/test_random.py",),
    ),
    Mutant(
        "midpoint-of-the-largest-alone", "mxnum/definition/offset.py",
        "return pack(sign, exponent - 1, total, kind, 0)\n\n    midpoint.__name__",
        "return pack(sign, exponent, total, kind, 0)\n\n    midpoint.__name__",
        "The offset is the sum of a block's largest and smallest number, not half of the sum.",
        ("tests/definition/test_offset.py::test_midpoint_is_one_rounding_of_the_exact_mean",),
    ),
    # Formats
    Mutant(
        "bias-of-e3m0", "mxnum/formats.py",
        "ElementFormat(\"e3m0\", exponent_bits=3, mantissa_bits=0, bias=3)",
        "ElementFormat(\"e3m0\", exponent_bits=3, mantissa_bits=0, bias=4)",
        "All values of E3M0 are half of what they should be.",
        ("tests/test_formats.py",),
    ),
    Mutant(
        "subnormal-values", "mxnum/formats.py",
        "return sign * math.ldexp(mantissa, self.emin - self.mantissa_bits)",
        "return sign * math.ldexp(mantissa, self.emin - self.mantissa_bits - 1)",
        "The values of subnormal codes are half of what they should be.",
        ("tests/test_formats.py",),
    ),
    Mutant(
        "bits-of-the-scale", "mxnum/formats.py",
        "return self.element.bits + self.scale.bits / self.block", "return self.element.bits + 1 / self.block",
        "The bits per element include only one bit of each scale.",
        ("tests/test_formats.py",),
    ),
    # The reference
    Mutant(
        "oracle-stochastic-threshold", "mxnum/reference/numbers.py",
        "Rounding.SR: math.floor(delta * 2**sr_bits) + random >= 2**sr_bits,",
        "Rounding.SR: math.floor(delta * 2**sr_bits) + random > 2**sr_bits,",
        "The oracle does not round away from zero if the fraction plus the random bits is exactly 1.",
        ("tests/reference/test_rounding.py",),
    ),
    Mutant(
        "oracle-sign-of-zero-sums", "mxnum/reference/numbers.py",
        "a.negative and b.negative if total == 0", "a.negative or b.negative if total == 0",
        "In the oracle +0 and -0 add up to -0.",
        ("tests/reference/test_offsets.py",),
    ),
    # Products and layers
    Mutant(
        "streams-of-a-layer", "mxnum/linear.py",
        "keywords[\"stream\"] = 2 * stream + which", "keywords[\"stream\"] = 2 * stream",
        "Both quantizations of an operand round with the same random words.",
        ("tests/test_linear.py::test_stochastic_rounding_takes_two_streams",),
    ),
    Mutant(
        "gradient-of-weights-along-outputs", "mxnum/linear.py",
        "(_quantized(grad, of_grad, 0, 1, threads).T,", "(_quantized(grad, of_grad, 1, 1, threads).T,",
        "The gradient is quantized along the outputs, although the product sums along the samples.",
        ("tests/test_linear.py::test_six_quantizations_along_the_summed_axes",),
    ),
    Mutant(
        "blocks-that-do-not-fit", "mxnum/products.py",
        "errors.require(b.blocks[-1] == block, \"b\", accepted, b.blocks[-1])", "pass",
        "A product with accumulate='block' accepts operands with different block lengths.",
        ("tests/test_products.py::test_one_sentence",),
    ),
    # Analysis
    Mutant(
        "clamped-at-the-tie", "mxnum/definition/by_numpy.py",
        "return np.asarray(_magnitude(code, wider) > e.max_code)",
        "return np.asarray(_magnitude(code, wider) >= e.max_code)",
        "Numbers that round to the largest element without saturation count as clamped.",
        (f"{STATISTICS}::test_who_is_clamped_beside_the_largest_value",),
    ),
    Mutant(
        "underflow-of-zeros", "mxnum/analysis/observed.py",
        "(magnitudes == 0)[q.codes] & (held != 0)", "(magnitudes == 0)[q.codes]",
        "Zeros count as underflow.",
        (f"{STATISTICS}::test_agrees_with_exact_rationals",),
    ),
    Mutant(
        "rates-of-all-elements", "mxnum/analysis/statistics.py",
        "return _ratio(self.clamped, self.measured)", "return _ratio(self.clamped, self.size)",
        "The clamp rate is a share of all elements, not only of the measured ones.",
        (f"{STATISTICS}::test_rates_leave_out_what_was_not_measured",),
    ),
    Mutant(
        "numpy-policies-exchanged", "mxnum/definition/by_numpy.py",
        "if asked.nonfinite.by_block:", "if asked.nonfinite.by_element:",
        "Without numba, the policies for NaN and infinity are exchanged.",
        ("tests/definition/test_by_numpy.py",),
    ),
    Mutant(
        "design-space-frontier", "mxnum/analysis/design_space.py",
        "if not kept or candidate.normalized_rmse < kept[-1].normalized_rmse:", "if True:",
        "The frontier also contains candidates with more bits but no smaller error.",
        ("tests/analysis/test_design_space.py::test_ranking_and_frontier",),
    ),
    # Verdicts
    Mutant(
        "any-zero-is-a-minus-zero", "mxnum/conformance/judging/judge.py",
        "settle(\"minus_zero\", want == sign, got == 0)", "settle(\"minus_zero\", want >= sign, got == 0)",
        "A negative number that wrongly became zero counts as a permitted choice about -0.",
        ("tests/conformance/judging/test_judge.py",),
    ),
    *(Mutant(*line) for line in (*PRODUCTS, *ENGINE, *LOOPS, *FLOAT_SCALES)),
)  # fmt: skip
