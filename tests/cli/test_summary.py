from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.analysis import measure
from mxnum.cli import summary
from tests import samples


@pytest.mark.parametrize("rule", list(mx.ScaleRule))
@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp4_e2m1", "mxint8"])
def test_clamping_counted_element_by_element(fmt, rule):
    x = samples.generator("summary", fmt, rule).standard_normal((6, 80)).astype(np.float32)
    x[0, :32], x[1, 3], x[2, 40] = 0, np.nan, np.inf
    counted = summary.FloatSummary(mx.formats.get(fmt), scale_rule=rule)
    counted.add(x)
    q = mx.quantize(x, fmt, scale_rule=rule)
    beyond, clamped, blocks = 0, 0, set()
    # `tie` is the midpoint between the largest value and the next value. Numbers above `tie` round
    # to the next value. `tie` itself rounds to the next value if the largest value has an odd code.
    tie, largest_is_odd = {"mxfp8_e4m3": (464, False), "mxfp4_e2m1": (7, True), "mxint8": (127.5 / 64, True)}[fmt]
    for (i, j), v in np.ndenumerate(x):
        scale = int(q.scales[i, j // 32])
        y = abs(float(v)) / 2.0 ** (scale - 127)
        if scale != 0xFF and y > q.format.element.max:
            beyond += 1
            blocks.add((i, j // 32))
            clamped += y > tie or (y == tie and largest_is_odd)
    sums = counted.sums
    assert (sums["beyond_max"], sums["clamped"], sums["blocks_beyond_max"]) == (beyond, clamped, len(blocks))
    assert (sums["blocks"], sums["nan_blocks"], counted.zero_blocks) == (18, 2, 1)
    assert (counted.nan, counted.infinite, counted.zeros) == (1, 1, 32)
    if rule in ("ceil", "rceil"):
        assert sums["beyond_max"] == sums["clamped"] == 0


def test_pieces_give_the_same_as_the_whole(monkeypatch):
    x = samples.generator("pieces").standard_normal((50, 64)).astype(np.float16)
    whole = summary.FloatSummary(mx.formats.get("mxfp8_e5m2"))
    whole.add(x)
    monkeypatch.setattr(summary, "PIECE", 500)
    parts = summary.FloatSummary(mx.formats.get("mxfp8_e5m2"))
    assert sum(len(piece) for piece in summary.pieces(x)) == 50
    for piece in summary.pieces(x):
        parts.add(piece)
    assert parts.exponents == whole.exponents
    a, b, want = parts.facts(), whole.facts(), measure(x, "mxfp8_e5m2")
    for name, figure in (
        ("relative root mean square error", want.normalized_rmse),
        ("bias", want.bias),
        ("gain", want.gain),
    ):
        assert a.pop(name) == pytest.approx(figure, rel=1e-9)
        assert b.pop(name) == figure
    assert a == b
    q = mx.quantize(x, "mxfp4_e2m1", axis=0)
    assert [len(piece) for piece in summary.pieces(q)] == [32, 18]


def test_facts_of_a_quantized_array():
    q = mx.quantize(np.array([[1.0, 6.0, 0.0, -6.0], [np.nan, 0, 0, 0]]), "mxfp4_e2m1")
    counted = summary.MXSummary(q)
    counted.add(q)
    facts = counted.facts()
    assert facts["blocks of NaN"] == 1
    assert facts["elements at the largest magnitude"] == 2
    assert facts["elements zero"] == 5
    assert facts["scale exponents"] == "0 to 0"
    assert counted.exponents == {0: 1}
