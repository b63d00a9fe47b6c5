"""Tests of `design_space`, which measures and ranks combinations of formats and modes."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest

from mxnum import formats
from mxnum.analysis import design_space, explore, measure, synthetic
from mxnum.analysis.design_space import bands, bits_per_element, block_shapes

X = synthetic.weights(64, 96)
FEW = {"formats": ["mxfp4_e2m1", "mxint4"], "roundings": ["rne", "sr"], "scale_rules": ["floor", "ceil"]}


def test_every_combination_once_and_as_measured():
    found = explore(X, **FEW)
    assert found.complete
    assert len(found.candidates) == found.total == 2 * 2 * 2 * 6 * 2
    assert len({(c.format, c.scale_rule, c.rounding, c.block, c.asymmetric) for c in found.candidates}) == found.total
    for c in found.candidates[::7]:
        options = {"seed": 0} if c.rounding == "sr" else {}
        options |= {"offset": "float16"} if c.asymmetric else {}
        options |= {"rounding": c.rounding, "scale_rule": c.scale_rule, "block_shape": (c.block_rows, c.block_columns)}
        got = measure(X, c.format, **options)
        assert (c.normalized_rmse, c.overflow_rate) == (got.normalized_rmse, got.beyond_max_rate)
        assert (c.clamp_rate, c.underflow_rate, c.gain) == (got.clamp_rate, got.underflow_rate, got.gain)


def test_by_default_everything_is_tried(monkeypatch):
    tried = []
    monkeypatch.setattr(design_space, "_measured", lambda x, *setting, **_: tried.append(setting))
    # 8 formats have 4 scale rules each, which are tried with and without offsets. The ninth
    # format, nvfp4, has 3 scale rules and no offsets.
    assert explore(X).total == len(tried) == (8 * 4 * 2 + 3) * 7 * 2 * 3


def test_the_block_of_a_format_is_tried():
    """Check that a format's own block size is tried, even if it is neither 16 nor 32."""
    wide, few = "e4m3:block=128,scale=float32", {"scale_rules": ["rceil"], "roundings": ["rne"], "asymmetric": [False]}
    found = explore(X, formats=["mxint8", wide], organisations=["row"], **few)
    (other, name) = (formats.get(each).name for each in ("mxint8", wide))
    tried = {kind: [c.block for c in found.candidates if c.format == kind] for kind in (other, name)}
    assert tried == {other: ["1x16", "1x32"], name: ["1x16", "1x32", "1x128"]}
    assert found.total == len(found.candidates) == 5
    got = measure(X, wide, scale_rule="rceil", block_shape=(1, 128))
    assert found.ranked(block="1x128")[0].normalized_rmse == got.normalized_rmse
    assert {c.block for c in explore(X, formats=[wide], **few).candidates} >= {"128x1", "8x16", "1x128"}
    asked = explore(X, formats=[wide], organisations=["row"], block_sizes=[32], **few)
    assert [c.block for c in asked.candidates] == ["1x32"]


def test_nvfp4_beside_mxfp4():
    """Check that one table can compare nvfp4 and mxfp4, each with its own scale rules."""
    x = X.copy()
    x[1, 0] = 3.0
    few = {"roundings": ["rne"], "organisations": ["row"], "block_sizes": [16], "asymmetric": [False, True]}
    found = explore(x, formats=["mxfp4_e2m1", "nvfp4"], sample=32 * 96, **few)
    kinds = {(c.format, c.scale_rule, c.asymmetric) for c in found.candidates}
    assert {c[1:] for c in kinds if c[0] == "nvfp4"} == {
        ("nearest", False), ("rceil", False), ("four_over_six_squared", False)
    }  # fmt: skip
    assert len(kinds) == found.total == 3 + 4 * 2
    part = design_space.bands(x, 32 * 96, 1)
    assert part.max() < 3.0
    for rule in ("nearest", "rceil"):
        got = measure(part, "nvfp4", scale_rule=rule, tensor_scale=np.float32(3.0 / 2688)[()].reshape(()))
        (c,) = found.ranked(format="nvfp4", scale_rule=rule)
        assert (c.normalized_rmse, c.clamp_rate) == (got.normalized_rmse, got.clamp_rate)
        assert (c.bits_per_element, c.zero_scale_rate) == (4.5, got.zero_scale_blocks)
    table = repr(found).splitlines()
    assert any(line.split()[:4] == ["nvfp4", "four_over_six_squared", "rne", "1x16"] for line in table)
    assert max(map(len, table)) <= 80
    both = explore(x, formats=["mxint8", "e4m3:block=128,scale=float32"], scale_rules=["rceil", "floor"], **few)
    assert len(both.candidates) == 2 * 2 + 1
    with pytest.raises(
        ValueError, match=r"'scale_rules' must be at least one of \['nearest', 'rceil'\] for mx_e4m3_128_f"
    ):
        explore(x, formats=["e4m3:block=128,scale=float32"], scale_rules=["floor"])
    with pytest.raises(ValueError, match="'asymmetric' must be a list containing False, because nvfp4 has no offsets"):
        explore(x, formats=["nvfp4"], asymmetric=[True])


def test_ranking_and_frontier():
    found = explore(X, **FEW)
    errors = [c.normalized_rmse for c in found.ranked()]
    assert errors == sorted(errors)
    assert found.best().normalized_rmse == errors[0]
    assert {c.organisation for c in found.ranked(organisation="tile")} == {"tile"}
    assert all(c.format == "mxint4" and not c.asymmetric for c in found.ranked(format="mxint4", asymmetric=False))
    front = found.frontier()
    for kept in front:
        assert not any(
            c.bits_per_element <= kept.bits_per_element and c.normalized_rmse < kept.normalized_rmse
            for c in found.candidates
        )
    assert [c.bits_per_element for c in front] == sorted({c.bits_per_element for c in front})
    with pytest.raises(ValueError, match="did you mean 'rounding'"):
        found.ranked(roundings="rne")
    with pytest.raises(ValueError, match=r"^Name 'by' in a candidate must be one of \['format', .*\]\.$"):
        found.ranked(by="bias")
    with pytest.raises(ValueError, match="'wanted' must be fields and values of at least one candidate"):
        found.best(format="mxint8")


def test_interrupting_keeps_what_was_measured():
    seen = []

    def stop(done, total, candidate):
        seen.append((done, total, candidate.format))
        if done == 3:
            raise KeyboardInterrupt

    found = explore(X, **FEW, progress=stop)
    assert [c.format for c in found.candidates] == ["mxfp4_e2m1", "mxint4", "mxfp4_e2m1"]
    assert seen[-1] == (3, 96, "mxfp4_e2m1")
    assert not found.complete
    assert "interrupted: 3 of 96" in repr(found)


def test_files(tmp_path):
    found = explore(X, formats=["mxfp4_e2m1"], roundings=["rne"], block_sizes=[32], asymmetric=[False])
    read = json.loads(json.dumps(found.as_dict()))
    assert read["candidates"][0]["normalized_rmse"] == found.best().normalized_rmse
    assert read["complete"] is True
    found.to_csv(tmp_path / "x.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "x.csv").read_text())))
    assert [float(row["normalized_rmse"]) for row in rows] == [c.normalized_rmse for c in found.ranked()]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.csv"]


def test_a_tensor_of_nan_has_no_frontier():
    found = explore(np.full((4, 32), np.nan, np.float32), **FEW)
    assert math.isnan(found.best().normalized_rmse)
    assert found.frontier() == []


def test_an_array_of_no_elements_has_no_ranking():
    with pytest.raises(ValueError, match=r"'x' must be of at least one element, not \(0, 4\)"):
        explore(np.zeros((0, 4), np.float32))


@pytest.mark.parametrize("shape", [(), (100,), (3, 5, 40)])
def test_any_rank(shape):
    x = np.ones(shape, np.float32)
    found = explore(x, formats=["mxfp4_e2m1"], roundings=["rne"], scale_rules=["floor"])
    assert found.measured == x.size
    assert found.best().normalized_rmse == 0


@pytest.mark.parametrize("wrong", [{"block_sizes": 32}, {"formats": "mxfp8_e4m3"}, {"asymmetric": True}])
def test_a_choice_alone_is_no_list(wrong):
    """Check that a single choice in place of a list raises an error."""
    with pytest.raises(TypeError, match=f"Argument '{next(iter(wrong))}' must be a list of choices, not"):
        explore(X, **wrong)


def test_block_shapes():
    assert list(block_shapes(32)) == [(1, 32), (32, 1), (4, 8)]
    assert list(block_shapes(16)) == [(1, 16), (16, 1), (4, 4)]
    assert list(block_shapes(1)) == [(1, 1)]
    assert list(block_shapes(7)) == [(1, 7), (7, 1)]


def test_bits():
    assert bits_per_element(formats.get("mxfp4_e2m1"), (1, 32)) == 4.25
    assert bits_per_element(formats.get("mxint4"), (4, 4), True) == 5.5


def test_bands_are_whole_blocks_of_the_matrix():
    x = np.arange(4096 * 64).reshape(4096, 64)
    few = bands(x, 1 << 14, 32)
    assert few.size == 1 << 14
    starts = few[::32, 0] // 64
    assert (starts % 32 == 0).all()
    assert (starts[0], starts[-1]) == (0, 4096 - 32)
    assert np.array_equal(few.reshape(-1, 32, 64), x.reshape(-1, 32, 64)[starts // 32])
    assert bands(x, None, 32) is x
    wide = np.ones((64, 1 << 16))
    assert bands(wide, 1 << 12, 32).size <= 32 * 256
    assert explore(X, **FEW, sample=1024).measured <= 32 * 96


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale_rules": ["flor"]}, "did you mean 'floor'"),
        ({"roundings": ["nearest"]}, "'roundings' must be one of"),
        ({"organisations": ["rows"]}, "did you mean 'row'"),
        ({"block_sizes": [0]}, "'block_sizes' must be at least 1"),
        ({"formats": ["mxfp9"]}, "'format' must be one of"),
        ({"sample": 0}, "'sample' must be at least 1"),
        ({"block_sizes": [17], "organisations": ["tile"]}, "because 17 elements cannot form a tile, not \\['tile'"),
        ({"block_sizes": [1], "organisations": ["tile"]}, "because 1 element cannot form a tile"),
        ({"block_sizes": [7, 17], "organisations": ["tile"]}, "because 7 or 17 elements cannot form a tile"),
        ({"block_sizes": []}, "'block_sizes' must be at least one choice, not \\[]"),
        ({"asymmetric": []}, "'asymmetric' must be at least one choice, not \\[]"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        explore(X, **options)
