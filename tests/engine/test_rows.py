"""Row loops against the loops over the definition: every format, rule, special value and length of block."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import mxnum as mx
from mxnum.engine import host, magic
from mxnum.formats import ELEMENTS
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule
from tests import samples


def request(x, name, rule=ScaleRule.FLOOR, blocks=(1, 32), **changes):
    options = {
        "x": x, "source": magic.FLOAT32, "element": ELEMENTS[name], "blocks": blocks, "rounding": Rounding.RNE,
        "scale_rule": rule, "overflow": Overflow.SATURATE, "nonfinite": Nonfinite.BLOCK, "scales": None,
        "offset_range": None, "random": None,
    }  # fmt: skip
    return host.Request(**{**options, **changes})


def inputs():
    """Ordinary blocks, and among them zeros, both ends of the exponents, NaN, infinities: every group meets some."""
    rng = samples.generator("rows")
    x = rng.standard_normal((40, 320)).astype(np.float32)
    bits = rng.integers(-(1 << 31), 1 << 31, (10, 320)).astype(np.int32)
    x[3, 64:96] = 0
    x[4, 7], x[5, 40], x[6, 319] = np.nan, np.inf, -np.inf
    x[7] *= np.float32(1e-38)
    x[8, :32] *= np.float32(1e38)
    x[9, 32:64] = -0.0
    x[10:30] *= np.exp2(rng.integers(-110, 100, (20, 1))).astype(np.float32)
    ties = (rng.integers(-512, 512, (10, 320)) / 16).astype(np.float32)
    return np.concatenate([x, bits.view(np.float32), ties])


@pytest.mark.parametrize("rule", ScaleRule)
@pytest.mark.parametrize("element", magic.ELEMENTS)
def test_codes_scales_and_values_are_those_of_the_definition(element, rule):
    x = inputs()
    asked = request(x, element, rule)
    assert asked.is_fast
    codes, scales, _ = host.quantize(asked)
    want_codes, want_scales, _ = host._quantize_by_definition(asked)
    samples.assert_same(f"scales {element} {rule}", None, scales, want_scales)
    samples.assert_same(f"codes {element} {rule}", x.view(np.int32), codes, want_codes)
    values = host.fake_quantize(asked).view(np.int32)
    decode = host.cpu.decode_elements(ELEMENTS[element], magic.FLOAT32)
    want = np.empty(x.shape, np.uint32)
    decode(want_codes, (1, 32), (10, 1), want_scales.ravel(), want, 0)
    samples.assert_same(f"values {element} {rule}", x.view(np.int32), values, want.view(np.int32))
    again = host.dequantize(codes, scales, None, ELEMENTS[element], (1, 32), magic.FLOAT32).view(np.int32)
    samples.assert_same(f"dequantized {element} {rule}", x.view(np.int32), again, want.view(np.int32))


@pytest.mark.parametrize("run", [1, 2, 7, 16, 32, 33, 320, 1000])
def test_every_length_of_block(run):
    x = inputs()
    asked = request(x, "e2m1", blocks=(1, run))
    codes, scales, _ = host.quantize(asked)
    want_codes, want_scales, _ = host._quantize_by_definition(asked)
    samples.assert_same(f"scales {run}", None, scales, want_scales)
    samples.assert_same(f"codes {run}", x.view(np.int32), codes, want_codes)


@pytest.mark.parametrize("name", ELEMENTS)
def test_every_code_under_every_scale_dequantizes_as_defined(name):
    element = ELEMENTS[name]
    codes = np.tile(np.arange(1 << element.bits, dtype=np.uint8), (256, 1))
    scales = np.arange(256, dtype=np.uint8).reshape(256, 1)
    blocks = (1, codes.shape[1])
    got = host.dequantize(codes, scales, None, element, blocks, magic.FLOAT32).view(np.uint32)
    want = np.empty(codes.shape, np.uint32)
    host.cpu.decode_elements(element, magic.FLOAT32)(codes, blocks, (1, 1), scales.ravel(), want, 0)
    samples.assert_same(name, None, got, want)


@pytest.mark.parametrize(
    "changes",
    [
        {"nonfinite": Nonfinite.ELEMENT}, {"scales": np.zeros((60, 10), np.uint8)}, {"rounding": Rounding.RTZ},
        {"overflow": Overflow.IEEE}, {"element": ELEMENTS["e3m0"]},
        {"element": dataclasses.replace(ELEMENTS["e4m3"], bias=8)},
    ],
)  # fmt: skip
def test_what_is_not_covered_goes_to_the_definition(changes):
    assert request(inputs(), "e4m3").is_fast
    assert not request(inputs(), "e4m3", **changes).is_fast


def test_other_layouts_go_to_the_definition():
    assert not request(inputs(), "e4m3", blocks=(2, 32)).is_fast
    assert not request(inputs()[:, ::2], "e4m3").is_fast
    assert not request(np.asfortranarray(inputs()), "e4m3").is_fast


@pytest.mark.parametrize("shape", [(1, 1 << 21), (7, 300_000), (1 << 21,), (3, 700_001)])
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_change_results(shape, threads, monkeypatch):
    x = samples.generator("threads").standard_normal(shape, dtype=np.float32)
    monkeypatch.setattr(host.numba, "get_num_threads", lambda: 1)
    want = mx.quantize(x, "mxfp8_e4m3")
    values = mx.fake_quantize(x, "mxfp8_e4m3")
    monkeypatch.setattr(host.numba, "get_num_threads", lambda: threads)
    assert mx.quantize(x, "mxfp8_e4m3").equals(want)
    assert np.array_equal(mx.fake_quantize(x, "mxfp8_e4m3"), values)
    assert np.array_equal(want.dequantize(), values)
