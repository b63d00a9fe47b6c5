"""Tests of `check_stochastic` on right and wrong numpy kernels with float scales."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance import ConformanceError, check_stochastic
from mxnum.conformance.bits import Generator
from mxnum.conformance.operations import make_task
from mxnum.conformance.stochastic import takes_seed
from mxnum.conformance.stochastic.chances import chances
from mxnum.conformance.stochastic.tiles import factors, inputs_of, largest_quotient, make_tile
from mxnum.memory.dtypes import numpy_dtype
from tests.conformance.stochastic import stochastic_kernels as kernels

FLOATS = "e2m1:block=16,scale=float32"


def blocks(draw=kernels.uniform, rounds_up=False, of_tensor=lambda largest: largest / 2688):
    """Return an NVFP4 kernel that computes in float64 and draws numbers by `draw(seed, shape)`."""

    def quantize(x, seed):
        t = np.float32(of_tensor(np.abs(x).max())).astype(np.float64)
        wanted = np.abs(x).max(axis=1).astype(np.float64) / (6 * t)
        scales = mx.encode(wanted, "e4m3", rounding="rtp" if rounds_up else "rne")
        factor = mx.decode(scales, "e4m3").astype(np.float64)[:, None] * t
        y = np.divide(x.astype(np.float64), factor, out=np.zeros(x.shape), where=factor > 0)
        return kernels.rounded(np.where(np.signbit(x) & (y == 0), -0.0, y), draw(seed, x.shape)), scales

    return quantize


def told(x, seed, tensor_scale):
    """Quantize stochastically with the tensor scale that the caller passes."""
    return blocks(of_tensor=lambda largest: tensor_scale)(x, seed)


def in_float32(x, seed, change=lambda scales: scales):
    """Quantize stochastically to E2M1 with float32 scales."""
    largest = np.abs(x).max(axis=1)
    is_finite = np.isfinite(largest)
    scales = change(np.where(is_finite, largest, 0) / np.float32(6))
    y = np.divide(x, scales[:, None], out=np.copysign(0, x), where=(scales > 0)[:, None])
    codes = np.where(is_finite[:, None], kernels.rounded(y, kernels.uniform(seed, x.shape)), 0)
    return codes, np.where(is_finite, scales, np.float32("nan"))


def next_to(scales):
    return np.nextafter(scales, np.float32(1))


def by_stack(x, seed):
    """Quantize with the scales of an NVFP4 software stack, and round codes stochastically."""
    from mxnum import stacks

    q = stacks.quantize(x, "transformer_engine")
    return blocks()(x, seed)[0], q.scales


@pytest.mark.parametrize(("kernel", "claims"), [
    (blocks(), {}),
    (blocks(rounds_up=True), {"scale_rule": "rceil"}),
    (told, {}),
    (by_stack, {}),
    (in_float32, {"format": FLOATS}),
])  # fmt: skip
def test_right_quantizers_pass(kernel, claims):
    report = check_stochastic(kernel, **{"format": "nvfp4", "bias": 1 / 16} | claims)
    assert report.is_equal
    assert "the exact fraction" in report.fits


def test_the_library_passes():
    def ours(x, seed):
        q = mx.quantize(x, "nvfp4", rounding="sr", seed=seed, sr_bits=6)
        return q.codes, q.scales

    report = check_stochastic(ours, format="nvfp4", sr_bits=6, bias=1 / 16)
    assert report.is_equal
    assert "6 random bits" in " ".join(report.fits)


def drawn_scales(x, seed):
    codes, scales = blocks()(x, seed)
    return codes, scales + (kernels.uniform(seed, len(x)) < 0.5) * (scales < 0x70) * (scales > 0)


WRONG = {
    "scales rounded up": (blocks(rounds_up=True), {"Scales": "The scales are those of scale rule rceil"}),
    "another tensor scale": (blocks(of_tensor=lambda largest: largest / 448), {"Scales": "blocks, e.g. "}),
    "scales that are drawn": (drawn_scales, {"Scales": "The same block gets different scales"}),
    "one word for a block": (
        blocks(lambda seed, s: np.broadcast_to(kernels.uniform(seed, (s[0], 1)), s)),
        {"Dependent draws": "each group of 16 adjacent elements, all round in the same direction"},
    ),
    "a fraction of half": (
        blocks(lambda seed, s: 2 * kernels.uniform(seed, s)), {"Shares": "All cases round away from zero too rarely"},
    ),
    "the library's rne": (
        lambda x, seed: (lambda q: (q.codes, q.scales))(mx.quantize(x, "nvfp4")),
        {"Nothing is drawn": "as with rounding rne"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_quantizers(name):
    kernel, said = WRONG[name]
    with pytest.raises(ConformanceError) as caught:
        check_stochastic(kernel, format="nvfp4", bias=1 / 16)
    found = caught.value.report.problems
    print(caught.value)
    for heading, pattern in said.items():
        assert any(re.search(pattern, sentence) for sentence in found[heading])


def test_wrong_scales_of_many_bits():
    with pytest.raises(ConformanceError, match=r"blocks, e\.g\. .*want 0x"):
        check_stochastic(lambda x, seed: in_float32(x, seed, next_to), format=FLOATS, bias=1 / 16)


@pytest.mark.parametrize("source", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("rule", ["nearest", "rceil"])
@pytest.mark.parametrize("fmt", [
    "nvfp4", FLOATS, "e4m3:block=16,scale=e4m3,tensor_scale=float32", "int4:block=32,scale=float16",
    "e5m2:block=8,scale=ue5m3",
])  # fmt: skip
def test_stochastic_cases_have_powers_of_two_as_factors(fmt, rule, source):
    """Check that scale * tensor scale is a power of two in each case, so division is exact."""
    from mxnum import reference

    task = make_task("quantize", fmt, scale_rule=rule, source=source, rounding="sr")
    reach, words = largest_quotient(task), Generator(3)
    assert task.element.max <= reach < 1.1 * task.element.max
    assert reach == task.element.max or rule == "nearest"
    tile = make_tile(task, chances(task, words, 1 / 16, reach), words, repeats=2)
    found, count = factors(task, tile.x), len(tile.chances)
    drawn = np.flatnonzero(~tile.is_still)
    assert len(set(found[drawn])) > (source != "float16")
    inputs = inputs_of(task, tile.x)
    for row in drawn[:: max(1, len(drawn) // 8)]:
        x = tile.x[row].view(numpy_dtype(task.source))
        tensor = None if not task.has_tensor else inputs["tensor_scale"][row].view(np.float32)[0]
        codes = reference.quantize(x, task.format, blocks=(task.block,), scale_rule=rule, tensor_scale=tensor).scales
        held = codes.astype(np.float64) if codes.dtype.kind == "f" else [task.format.scale.value(int(codes[0]))]
        assert float(held[0]) * (1.0 if tensor is None else float(tensor)) == found[row]
        for value, number in zip(x.astype(np.float64), tile.ids[row], strict=True):
            assert np.frexp(found[row])[0] == 0.5
            assert number >= count or value / found[row] == tile.chances[number].value


def test_four_over_six_is_refused():
    with pytest.raises(ValueError, match="'scale_rule' must be 'nearest' or 'rceil' for check_stochastic"):
        check_stochastic(blocks(), format="nvfp4", scale_rule="four_over_six_squared")


def test_tensor_arguments_are_not_taken_for_seeds():
    def one(x, largest): ...
    def two(x, seed, tensor_scale): ...
    def both(x, tensor_scale, largest): ...

    assert [takes_seed(f) for f in (one, two, both)] == [False, True, False]
