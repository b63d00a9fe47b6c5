"""Tests that right kernels pass, and that reports describe the mistakes of wrong kernels."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance import ConformanceError, check_stochastic
from mxnum.conformance.stochastic import takes_seed
from tests.conformance.stochastic import stochastic_kernels as kernels

E2M1 = {"format": "mxfp4_e2m1", "operation": "encode"}


def ours(bits):
    return lambda x, seed: mx.encode(x, "e2m1", rounding="sr", seed=seed, sr_bits=bits)


def our_blocks(x, seed):
    q = mx.quantize(x, "mxfp4_e2m1", rounding="sr", seed=seed)
    return q.codes, q.scales


def unseeded(x, generator=np.random.default_rng(7)):
    return kernels.rounded(x, generator.random(x.shape))


def by_floor(x, seed):
    """Round stochastically: draw whether to round up, not whether to round away from zero."""
    below, delta = kernels.fractions(x)
    up = np.where(np.signbit(x), 1 - delta, delta) > 1 - kernels.uniform(seed, x.shape)
    return kernels.signed(below + (up != np.signbit(x)) * (delta > 0), x)


def without_minus_zero(x, seed):
    codes = kernels.rounded(x, kernels.uniform(seed, x.shape))
    return np.where(codes == 8, 0, codes)


@pytest.mark.parametrize(
    ("kernel", "bits", "fits"),
    [
        (ours(30), None, "the exact fraction, or 9 random bits or more"),
        (ours(4), 4, "4 random bits, the fraction truncated"),
        (lambda x, seed: kernels.with_bits(8, seed, x), 8, "8 random bits, the fraction truncated"),
        (lambda x, seed: kernels.with_bits(16, seed, x), 16, "the exact fraction, or 9 random bits or more"),
        (kernels.plain(lambda delta, x: delta), None, "the exact fraction"),
        (unseeded, None, "the exact fraction"),
        (by_floor, None, "the exact fraction"),
    ],
)
def test_right_encoders_pass(kernel, bits, fits):
    report = check_stochastic(kernel, **E2M1, sr_bits=bits, bias=1 / 32)
    assert report.is_equal
    assert f"The observed shares of results rounded away from zero fit {fits}" in report.text()


@pytest.mark.parametrize("kernel", [our_blocks, kernels.blocks(kernels.uniform)])
def test_right_quantizers_pass(kernel):
    assert check_stochastic(kernel, format="mxfp4_e2m1", bias=1 / 16).is_equal


def test_a_kernel_of_torch_gets_tensors_and_may_pack_its_codes():
    torch = pytest.importorskip("torch")

    def kernel(x, seed):
        assert isinstance(x, torch.Tensor)
        u = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        codes, scales = kernels.blocks(lambda *_: u.numpy())(x.numpy(), seed)
        packed = torch.from_numpy(codes[:, ::2] | codes[:, 1::2] << 4)
        return packed.view(torch.float4_e2m1fn_x2), torch.from_numpy(scales).view(torch.float8_e8m0fnu)

    assert check_stochastic(kernel, format="mxfp4_e2m1", bias=1 / 16, arrays="torch").is_equal


def test_codes_that_do_not_fit_are_named():
    def kernel(x, seed):
        return kernels.rounded(x, kernels.uniform(seed, x.shape)) | 0xA0

    with pytest.raises(ConformanceError, match="got a value that is no code of 4 bits"):
        check_stochastic(kernel, **E2M1, bias=1 / 16)


def test_a_lost_minus_zero_is_a_choice():
    report = check_stochastic(without_minus_zero, **E2M1, bias=1 / 16)
    assert set(report.choices) == {"minus_zero"}
    with pytest.raises(ConformanceError, match="Choice minus_zero"):
        check_stochastic(without_minus_zero, **E2M1, bias=1 / 16, strict=True)
    assert check_stochastic(without_minus_zero, **E2M1, bias=1 / 16, strict=True, accept="minus_zero").is_equal


#: For each mistake: the kernel, and the text that the report must have under each heading.
WRONG = {
    "1 - p": (
        kernels.plain(lambda d, x: 1 - d * (d > 0)),
        {"Shares": "", "Nothing to draw": "^0.5: got 1 .0x2., want 0.5"},
    ),
    "1 - p between codes": (
        kernels.plain(lambda d, x: np.where((d > 0) & (d < 1), 1 - d, d)),
        {"Shares": "", "fits": "those of 1 - p, the fraction measured from the wrong neighbour"},
    ),
    "1 - p for negative numbers": (
        kernels.plain(lambda d, x: np.where((d > 0) & (d < 1) & (x < 0), 1 - d, d)),
        {"Shares": "", "fits": "those of 1 - p for negative numbers, p for positive ones"},
    ),
    "a bias of 1/256": (
        kernels.plain(lambda d, x: np.where((d > 0) & (d < 1), d + 1 / 256, d)),
        {"Shares": "All cases round away from zero too often: by 0.0039"},
    ),
    "one half": (
        kernels.plain(lambda d, x: np.where((d > 0) & (d < 1), 0.5, d)),
        {"Shares": "", "fits": "those of one half for every fraction"},
    ),
    "subnormals go down": (
        kernels.plain(lambda d, x: np.where(np.abs(x) < 1, (d == 1) * 1.0, d)),
        {"Shares": "Subnormal results round away from zero too rarely"},
    ),
    "four bits, not all": (
        lambda x, seed: kernels.with_bits(4, seed, x),
        {"Shares": "", "fits": "those of 4 random bits, the fraction truncated"},
    ),
    "four bits, <=": (kernels.counts_zero_in, {"Shares": "", "Moved": "become"}),
    "four bits, the fraction rounded up": (
        lambda x, seed: kernels.with_bits(4, seed, x, np.ceil),
        {"Shares": "", "fits": "those of 4 random bits, the fraction rounded up"},
    ),
    "words that are never 0": (
        lambda x, seed: kernels.with_bits(4, seed, x, least=1),
        {"Shares": "", "fits": "those of 4-bit random words that are never 0"},
    ),
    "a free-running LFSR": (kernels.lfsr(), {"Dependent draws": "repeat with a period of 4095 elements"}),
    "noise, then truncation": (
        kernels.noise_and_truncation,
        {"Shares": "Normal results round away from zero too rarely"},
    ),
    "noise, then to nearest": (
        kernels.noise_and_nearest,
        {"Codes": "from -2 .0xC. to -3 .0xD.: got -1.5 .0xB.", "Moved": "^-?[24] becomes", "Shares": "1 of 45"},
    ),
    "a seed in float32": (
        kernels.drawing(lambda seed, s: kernels.uniform(int(np.float32(seed)), s)),
        {"Seeds": "only 32 different answers: seed 1073741825, seed 1073741826 give"},
    ),
    "another code": (
        kernels.skips_a_code,
        {"Codes": "of the way from -1.5 .0xB. to -2 .0xC.: got -1 .0xA. [0-9]+ times"},
    ),
    "exact values move rarely": (kernels.moves_exact_values, {"Moved": "becomes .* times, .* must not be random"}),
    "saturated values move": (kernels.moves_saturated_values, {"Moved": "becomes 4 .0x6. .* times, 6 .0x7. .* times"}),
    "minus zero sometimes": (kernels.sometimes_without_sign, {"Codes": "lose their sign .* times and keep it"}),
    "one word for four": (
        kernels.drawing(lambda seed, s: np.repeat(kernels.uniform(seed, -(-s[0] // 4)), 4)[: s[0]]),
        {"Dependent draws": "each group of 4 adjacent elements, all round in the same direction"},
    ),
    "one word for a call": (
        kernels.drawing(lambda seed, s: np.full(s, kernels.uniform(seed, ()))),
        {"Seeds": "one random word for all"},
    ),
    "u, then 1 - u": (kernels.drawing(kernels.antithetic), {"Dependent draws": "1 element further on .* in [0-9]%|25"}),
    "a generator of period 256": (
        kernels.drawing(kernels.generator_of_period_256),
        {"Dependent draws": "256 elements further on round in the same direction in 100%", "Seeds": "seed 1, seed 257"},
    ),
    "a register that steps one bit": (
        kernels.drawing(kernels.shift_register),
        {"Dependent draws": "1 element further on both round away from zero"},
    ),
    "seeds move along one stream": (
        kernels.drawing(kernels.stream_from),
        {"Dependent draws": "4 elements further on in the previous call round in the same direction in 100%"},
    ),
    "one seed": (kernels.drawing(lambda seed, s: kernels.uniform(0, s)), {"Seeds": "All answers are the same"}),
    "words drawn once": (kernels.Cached(), {"Seeds": "All answers are the same"}),
    "a seed of one bit": (
        kernels.drawing(lambda seed, s: kernels.uniform(seed & 1, s)),
        {"Seeds": "only 2 different answers: seed 1, seed 3"},
    ),
    "a seed of 16 bits": (
        kernels.drawing(lambda seed, s: kernels.uniform(seed & 0xFFFF, s)),
        {"Seeds": "only 17 different answers"},
    ),
    "no use of the seed": (
        kernels.drawing(lambda seed, s: kernels.uniform(None, s)),
        {"Not repeatable": "Two calls with seed 1 differ in"},
    ),
    "rounding to nearest": (
        kernels.plain(lambda d, x: (d > 0.5) * 2.0),
        {"Nothing is drawn": "Every number becomes the same code"},
    ),
    "the library's rne": (lambda x, seed: mx.encode(x, "e2m1"), {"Nothing is drawn": "as with rounding rne"}),
}  # fmt: skip


def headings(report):
    return {*report.problems, *(["fits"] if report.fits and "exact" not in report.fits[0] else [])}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_encoders(name):
    kernel, said = WRONG[name]
    with pytest.raises(ConformanceError) as caught:
        check_stochastic(kernel, **E2M1, bias=1 / 64 if "1/256" in name else 1 / 24)
    report = caught.value.report
    print(report.text())
    assert set(report.problems) == set(said) - {"fits"}
    for heading, pattern in said.items():
        sentences = [f"those of {fit}" for fit in report.fits] if heading == "fits" else report.problems[heading]
        assert any(re.search(pattern, sentence) for sentence in sentences), heading


WRONG_BLOCKS = {
    "one word for a block": (
        kernels.blocks(lambda seed, s: np.broadcast_to(kernels.uniform(seed, (s[0], 1)), s)),
        {"Dependent draws": "each group of 32 adjacent elements, all round in the same direction"},
    ),
    "rows that repeat": (
        kernels.blocks(lambda seed, s: np.repeat(kernels.uniform(seed, (-(-s[0] // 2), s[1])), 2, axis=0)[: s[0]]),
        {"Dependent draws": "32 elements further on .1 block. round in the same direction in 7[0-9]"},
    ),
    "all rows alike": (
        kernels.blocks(lambda seed, s: np.broadcast_to(kernels.uniform(seed, (1, s[1])), s)),
        {"Dependent draws": "32 elements further on .1 block. round in the same direction in 100%"},
    ),
    "scales that are drawn": (kernels.draws_scales, {"Scales": "The same block gets different scales"}),
    "another scale rule": (
        kernels.of_ceil,
        {"Scales": "The scales are those of scale rule ceil, even, rceil, half_up or "},
    ),
    "the library's rne": (
        lambda x, seed: (lambda q: (q.codes, q.scales))(mx.quantize(x, "mxfp4_e2m1")),
        {"Nothing is drawn": "as with rounding rne"},
    ),
}


@pytest.mark.parametrize("name", WRONG_BLOCKS)
def test_wrong_quantizers(name):
    kernel, said = WRONG_BLOCKS[name]
    with pytest.raises(ConformanceError) as caught:
        check_stochastic(kernel, format="mxfp4_e2m1", bias=1 / 16)
    found = caught.value.report.problems
    print(caught.value)
    assert set(found) == set(said)
    for heading, pattern in said.items():
        assert any(re.search(pattern, sentence) for sentence in found[heading])


def test_a_function_that_draws_without_a_seed_must_not_repeat_itself():
    with pytest.raises(ConformanceError, match=r"Calls: All answers are the same \(call 1 to call 33\)"):
        check_stochastic(lambda x: kernels.rounded(x, kernels.uniform(1, x.shape)), **E2M1, bias=1 / 16)


def test_rounding_the_fraction_to_8_bits_differs_from_truncating():
    def nearest(x, seed):
        return kernels.with_bits(8, seed, x, lambda steps: np.floor(steps + 0.5))

    assert check_stochastic(nearest, **E2M1, sr_bits=8, bias=1 / 32, accept="sr_fraction").is_equal
    with pytest.raises(ConformanceError, match="fit 8 random bits, the fraction to nearest") as caught:
        check_stochastic(nearest, **E2M1, sr_bits=8, bias=1 / 32)
    assert "The share of draws" in str(caught.value)
    with pytest.raises(ConformanceError, match="Shares"):
        check_stochastic(ours(10), **E2M1, sr_bits=8, bias=1 / 32)


def test_verdict_depends_on_the_seed_alone():
    def kernel(x, seed):
        return kernels.rounded(x, kernels.uniform(seed, x.shape))

    first, again, other = (check_stochastic(kernel, **E2M1, bias=1 / 16, seed=seed) for seed in (3, 3, 4))
    assert first.as_dict() == again.as_dict()
    assert first.as_dict()["sr_bits"] == "exact"
    assert first.text() == again.text()
    assert first.cases == other.cases


def test_seed_is_passed_to_functions_with_a_seed_parameter():
    def both(x, seed): ...
    def one(x): ...
    def optional(x, generator=None): ...
    def named(x, seed=0): ...
    def three(x, seed, more): ...

    assert [takes_seed(f) for f in (both, one, optional, named)] == [True, False, False, True]
    with pytest.raises(ValueError, match=r"Argument 'function' must be a callable of \(x\) or \(x, seed\), not"):
        takes_seed(three)
    with pytest.raises(
        ValueError, match="Argument 'seeded' must be True or False for a function whose signature cannot be read"
    ):
        takes_seed(max)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"operation": "dot"}, "Argument 'operation' must be one of"),
        ({"rounding": "rne"}, "Argument 'rounding' must be 'sr', or left out, not 'rne'"),
        ({"bias": 0}, "Argument 'bias' must be above 0 and at most 0.25, not 0"),
        ({"power": 1}, "Argument 'power' must be above 0 and at most 0.9999, not 1"),
        ({"sr_bits": 65}, "Argument 'sr_bits' must be between 1 and 64, not 65"),
        ({"block": 1}, "Argument 'block' must be at least 2 for quantize, not 1"),
    ],
)
def test_arguments(arguments, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        check_stochastic(our_blocks, **{"format": "mxfp4_e2m1", **arguments})
