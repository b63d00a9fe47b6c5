from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mxnum.conformance.bits import Generator, as_floats, magnitude_bits
from mxnum.conformance.cases import float_scales, grid, units
from mxnum.conformance.cases.batches import cases, number_of_cases
from mxnum.conformance.judging.right import expected
from mxnum.conformance.operations import OPERATIONS, make_task
from tests.conformance.test_task import deciding


def gathered(task, **options):
    batches = list(cases(task, **options))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp4_e2m1"])
def test_shapes_counts_and_seeds(operation, fmt):
    task = make_task(operation, fmt, **deciding(operation))
    for options in ({"level": 1}, {"level": 2, "count": 9000}):
        got = gathered(task, **options)
        assert {f.name: f.count for f in task.inputs} == {name: column.shape[1] for name, column in got.items()}
        assert {len(column) for column in got.values()} == {number_of_cases(task, **options)}
        again = gathered(task, **options)
        assert all(np.array_equal(got[name], again[name]) for name in got)
    if operation not in ("decode", "dequantize"):  # decoding has the same cases for every seed: all codes in turn
        other = gathered(task, level=2, count=9000, seed=1)
        assert not np.array_equal(other[task.inputs[0].name], got[task.inputs[0].name])
    least = 1 << task.element.bits if operation == "decode" else 500
    assert least <= number_of_cases(task, level=1) <= 100_000


@pytest.mark.parametrize("source", ["float32", "float16", "float64"])
@pytest.mark.parametrize("fmt", ["mxfp8_e5m2", "mxfp6_e2m3", "mxint8"])
def test_level_1_of_encode_has_every_boundary_and_its_neighbours(fmt, source):
    task = make_task("encode", fmt, source=source)
    seen = set(gathered(task)["x"][:, 0].tolist())
    points = grid.points(task.element)
    near = grid.with_neighbours(grid.narrowed(points[points <= float(task.source.max)], task.source), task.source)
    assert set(near.tolist()) <= seen
    assert set(grid.special_patterns(task.source, nan=task.takes_nan).tolist()) <= seen


def test_level_1_of_quantize_reaches_every_scale_extreme_and_class():
    for rule in ("floor", "ceil", "even", "rceil"):
        task = make_task("quantize", "mxfp8_e4m3", scale_rule=rule)
        inputs = gathered(task)
        want = expected(task, inputs)
        scales = set(want["scale"][:, 0].tolist())
        highest = 246 + (rule != "floor")  # the scale code of the largest finite float32
        assert {0, 1, 2, 126, 127, 128, highest - 1, highest, 255} <= scales
        at_one = inputs["x"][want["scale"][:, 0] == 127]
        found = grid.places(grid.as_magnitudes(at_one, task.source), task.element)
        names = {grid.PLACES[i] for i in np.unique(found)}
        never = {"NaN", "infinity"} | ({"beyond the largest"} if rule in ("ceil", "rceil") else set())
        assert names == set(grid.PLACES) - never
        codes = want["codes"][want["scale"][:, 0] == 127]
        unreached = {0x7F, 0xFF} | ({0x79, 0x7A, 0x7B, 0x7C, 0x7D, 0x7E} if rule == "ceil" else set())
        assert {code & 0x7F for code in codes.ravel().tolist()} == set(range(128)) - unreached


@pytest.mark.parametrize("operation", ["quantize", "scale"])
@pytest.mark.parametrize("fmt", ["mxfp4_e2m1", "nvfp4", "e4m3:block=128,scale=float32"])
def test_every_position_and_sign_decides_some_scale(operation, fmt):
    # The largest element must occur at every position of a block; otherwise a kernel that ignores a
    # position would pass.
    task = make_task(operation, fmt)
    inputs = gathered(task)
    of_scale = replace(task, operation=OPERATIONS["scale"])
    finite = np.isfinite(as_floats(inputs["x"], task.source)).all(axis=1)
    some = {name: column[finite] for name, column in inputs.items()}
    want = expected(of_scale, some)["scale"]
    for place in range(task.block):
        x = some["x"].copy()
        x[:, place] = 0
        differs = (expected(of_scale, {**some, "x": x})["scale"] != want)[:, 0]
        signs = np.signbit(as_floats(some["x"], task.source)[differs, place])
        assert set(signs.tolist()) == {True, False}, place


@pytest.mark.parametrize(("operation", "modes"), [("encode", {}), ("quantize", {"nonfinite": "element"})])
def test_nan_without_an_answer_comes_last_and_only_at_level_1(operation, modes):
    # E2M1 has no code for NaN, so inputs with NaN have no right answer. Only the last cases of
    # level 1 have such inputs.
    task = make_task(operation, "mxfp4_e2m1", **modes)
    *finite, last = cases(task)
    assert not any(np.isnan(as_floats(batch["x"], task.source)).any() for batch in finite)
    assert np.isnan(as_floats(last["x"], task.source)).any(axis=1).all()
    assert not np.isnan(as_floats(gathered(task, level=2, count=20000)["x"], task.source)).any()


def test_cases_contain_nan_if_blocks_have_an_answer():
    task = make_task("quantize", "mxfp4_e2m1")
    assert np.isnan(as_floats(gathered(task)["x"], task.source)).any()


@pytest.mark.parametrize("operation", ["encode", "quantize"])
def test_random_words_lie_on_both_sides_of_the_threshold(operation):
    """Check that in many cases, a random word that is smaller by 1 changes the answer."""
    task = make_task(operation, "mxfp8_e4m3", rounding="sr", sr_bits=7)
    inputs = gathered(task)
    name = task.outputs[-1].name
    low = (inputs["random"] & 0x7F) > 0
    less = {**inputs, "random": np.where(low, inputs["random"] - np.uint32(1), inputs["random"])}
    differs = (expected(task, inputs)[name] != expected(task, less)[name]) & low
    assert differs.sum() > 500
    high = {**inputs, "random": inputs["random"] ^ np.uint32(0xFFFFFF80)}
    assert np.array_equal(expected(task, inputs)[name], expected(task, high)[name])


@pytest.mark.parametrize("options", [{}, {"level": 2, "count": 256 * 16}])
def test_dequantize_has_every_pair(options):
    # Regression: level 1 had only 72 of the 256 scale codes, but the documentation promised all.
    task = make_task("dequantize", "mxfp4_e2m1")
    inputs = gathered(task, **options)
    assert len(set(zip(inputs["scale"][:, 0].tolist(), inputs["code"][:, 0].tolist(), strict=True))) == 256 * 16


@pytest.mark.parametrize("source", ["bfloat16", "float16"])
def test_encode_has_every_number_of_16_bits(source):
    task = make_task("encode", "mxfp8_e4m3", source=source)
    assert gathered(task)["x"][:, 0].tolist() == list(range(1 << 16))
    task = make_task("encode", "mxfp4_e2m1", source=source)
    assert len(np.unique(gathered(task)["x"])) == number_of_cases(task) == 1 << 16


def test_mistakes():
    task = make_task("encode", "mxfp4_e2m1")
    with pytest.raises(ValueError, match="'count' must be left out at level 1"):
        next(cases(task, count=5))
    with pytest.raises(ValueError, match="'level' must be 1 or 2"):
        next(cases(task, level=3))


@pytest.mark.parametrize("operation", ["quantize", "scale"])
@pytest.mark.parametrize("source", ["bfloat16", "float16"])
def test_blocks_of_16_bit_sources_at_level_1(operation, source):
    # Regression: cases at the thresholds of scale rules raised KeyError for the narrowest source
    # types.
    task = make_task(operation, "mxfp8_e4m3", source=source)
    assert sum(len(batch["x"]) for batch in cases(task)) > 500


def test_blocks_under_float_scales_have_boundaries_and_both_neighbours():
    task = make_task("quantize", "e4m3:block=128,scale=float32")
    anchors = grid.narrowed(np.full(100, 448.0), task.source)  # blocks with this maximum have scale 1
    found = magnitude_bits(float_scales._around(task, Generator(1), anchors, None), task.source).astype(np.int64)
    points = grid.narrowed(grid.points(task.element), task.source).astype(np.int64)
    steps = found[:, :, None] - points[points <= anchors[0]]
    nearest = np.take_along_axis(steps, np.abs(steps).argmin(axis=2)[:, :, None], axis=2)[:, :, 0]
    assert {*nearest[found < anchors[0]].tolist()} == {-1, 0, 1}


@pytest.mark.parametrize("operation", ["dot", "mma"])
def test_special_addends_of_units_have_both_signs(operation):
    task = make_task(operation, "e4m3", accumulate="hopper_fp8")
    addends = {*units._special_products(task)["c"][:, 0].tolist()}
    assert {0, 1, task.source.max_code, task.source.max_code + 1, task.source.nan_code} <= addends
    assert addends == {code ^ (1 << 31) for code in addends}
