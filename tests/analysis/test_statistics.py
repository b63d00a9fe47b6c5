"""Tests that the counts and sums of `measure` agree with exact rationals, also over many chunks."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

import mxnum as mx
from mxnum import formats, reference
from mxnum.analysis import statistics
from mxnum.analysis.statistics import measure
from mxnum.formats import ElementFormat
from mxnum.layout import resolve_blocks, scales_shape
from tests.samples import generator

COUNTS = ("size", "nonfinite", "measured", "compared", "beyond_max", "clamped", "at_max", "underflowed")


def block_of(index, blocks):
    """Return the index of the block of an element."""
    return tuple(i // b for i, b in zip(index, blocks, strict=True))


def naive(x, fmt, blocks, random_bits=None, **options):
    """Return the counts, value and error of each element as exact numbers, and the block scales.

    `mxnum.reference` quantizes the array. It also rounds each number to an element with one more
    exponent bit. If the result is above the largest value, the number counts as clamped.
    """
    fmt = formats.get(fmt)
    element = fmt.element
    bits = 1 if element.integer else element.exponent_bits
    wider = ElementFormat("wider", bits + 1, element.mantissa_bits, element.bias)
    q = reference.quantize(x, fmt, blocks=blocks, random_bits=random_bits, **options)
    codes, scales, offsets = q.codes, q.scales, q.offsets
    largest = Fraction(element.max)
    found = {}
    for index in np.ndindex(x.shape):
        block = block_of(index, blocks)
        row = dict.fromkeys(COUNTS, 0) | {"size": 1, "e": Fraction(0), "x": Fraction(0)}
        found[index] = row
        value = float(x[index])
        row["nonfinite"] = int(not math.isfinite(value))
        number = float(scales[block]) if fmt.scale.bits > 8 else fmt.scale.value(int(scales[block]))
        if row["nonfinite"] or math.isnan(number):
            continue
        held = value
        if offsets is not None:
            held = float(x[index].astype(np.float32) - offsets[block].astype(np.float32))
        tensor = 1.0 if q.tensor_scale is None else float(np.broadcast_to(q.tensor_scale, x.shape)[index])
        scale = Fraction(number) * Fraction(tensor)
        y = Fraction(held) / scale if scale else Fraction(0)
        row["measured"] = 1
        lost = scale == 0 and held != 0  # under a scale of 0 every number but 0 is beyond the largest value
        row["beyond_max"] = int(lost or abs(y) > largest)
        word = {} if random_bits is None else {"random_bits": int(random_bits[index])}
        word |= {"sr_bits": options["sr_bits"]} if "sr_bits" in options else {}
        rounded = reference.encode(y, wider, rounding=options.get("rounding", "rne"), **word)
        row["clamped"] = int(lost or abs(wider.value(rounded)) > element.max)
        held_value = element.value(int(codes[index]))
        row["at_max"] = int(abs(held_value) == element.max)
        row["underflowed"] = int(held_value == 0 and held != 0)
        if math.isfinite(held_value):
            row["compared"] = 1
            offset = 0 if offsets is None else Fraction(float(offsets[block]))
            row["x"] = Fraction(value)
            row["e"] = Fraction(held_value) * scale + offset - row["x"]
    return found, scales


def assert_agrees(got, rows):
    """Assert that statistics equal sums over the rows that `naive` returns."""
    for name in COUNTS:
        assert getattr(got, name) == sum(row[name] for row in rows), name
    e, x = [row["e"] for row in rows], [row["x"] for row in rows]
    sums = {
        "sum_x2": sum(v * v for v in x),
        "sum_error": sum(e),
        "sum_error2": sum(v * v for v in e),
        "sum_error_x": sum(a * b for a, b in zip(e, x, strict=True)),
        "max_error": max(map(abs, e), default=0),
    }
    size = float(sum(abs(v) for v in e) + sum(abs(a * b) for a, b in zip(e, x, strict=True)))
    for name, want in sums.items():
        assert getattr(got, name) == pytest.approx(float(want), rel=1e-13, abs=1e-13 * size), name


def sample(name, shape=(4, 20)):
    """Return normally distributed numbers of many magnitudes, with zeros, NaN and infinities."""
    rng = generator("statistics", name)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-8, 3, shape))
    x[0, :4] = [0.0, -0.0, 7.9999995, -464.0]
    x[1, 5], x[2, 15], x[3, 17] = np.nan, np.inf, -np.inf
    return x.astype(np.float32)


@pytest.mark.parametrize("rounding", ["rne", "rna", "rtz", "rtp", "rtn", "rto", "sr"])
@pytest.mark.parametrize("fmt", formats.names("e8m0"))
def test_agrees_with_exact_rationals(fmt, rounding, monkeypatch):
    monkeypatch.setattr(statistics, "CHUNK", 40)
    x, blocks = sample(f"{fmt} {rounding}"), (1, 8)
    words = reference.random_words(x.shape, seed=5) if rounding == "sr" else None
    rows, _ = naive(x, fmt, blocks, words, rounding=rounding)
    random = {} if words is None else {"seed": 5}
    for options in [random, {"random_bits": words}] if random else [{}]:
        got = measure(x, fmt, blocks=blocks, rounding=rounding, **options)
        assert_agrees(got, list(rows.values()))
        assert (got.blocks, got.nan_blocks) == (12, 3)
        over = {block_of(i, blocks) for i, row in rows.items() if row["beyond_max"]}
        assert got.blocks_beyond_max == len(over)


FLOAT_SCALES = (
    ("nvfp4", {}),
    ("nvfp4", {"scale_rule": "rceil", "tensor_scale": "row", "rounding": "rna"}),
    ("nvfp4", {"tensor_scale": np.array(2.0**-12, np.float32), "rounding": "sr"}),
    ("nvfp4", {"tensor_scale": np.array(2.0**-14, np.float32), "rounding": "rto"}),
    ("e4m3:scale=float32", {"rounding": "rtp", "overflow": "ieee"}),
    ("e2m1:scale=e4m3", {"rounding": "rtn"}),
    ("int4:scale=float16", {"rounding": "sr"}),
    ("e3m0:scale=ue5m3,tensor_scale=float32", {"rounding": "rtz"}),
)


@pytest.mark.parametrize("case", range(len(FLOAT_SCALES)))
def test_scales_that_are_floats(case, monkeypatch):
    monkeypatch.setattr(statistics, "CHUNK", 40)
    fmt, options = FLOAT_SCALES[case]
    x, blocks = sample(f"float scales {case}"), (1, 8)
    x[2, :8] *= np.float32(2.0**-20)
    words = {"random_bits": reference.random_words(x.shape, seed=5)} if options.get("rounding") == "sr" else {}
    rows, scales = naive(x, fmt, blocks, **options, **words)
    got = measure(x, fmt, blocks=blocks, **options, **({"seed": 5} if words else {}))
    assert_agrees(got, list(rows.values()))
    assert (got.blocks, got.nan_blocks) == (12, 3)
    over = {block_of(i, blocks) for i, row in rows.items() if row["beyond_max"]}
    assert got.blocks_beyond_max == len(over)
    scale = formats.get(fmt).scale
    numbers = (
        scales.astype(float) if scale.bits > 8 else np.array([[scale.value(int(c)) for c in row] for row in scales])
    )
    assert got.zero_scales == np.sum(numbers == 0)
    assert got.subnormal_scales == np.sum((numbers > 0) & (numbers < scale.number.min_normal))
    assert got.largest_scales == np.sum(numbers == scale.number.max)
    q = reference.quantize(x, fmt, blocks=blocks, **options, **words)
    assert np.array_equal(got.tensor_scale, q.tensor_scale) if q.tensor_scale is not None else got.tensor_scale is None
    by_block = measure(x, fmt, blocks=blocks, per="block", **options, **({"seed": 5} if words else {}))
    assert np.array_equal(by_block.zero_scales, numbers == 0)
    assert by_block.clamped.sum() == got.clamped


def test_scales_that_are_floats_say_what_became_of_them():
    x = np.repeat(np.float32([[1], [2.0**-6], [2.0**-16], [0]]), 16, axis=1)
    got = measure(x, "e2m1:block=16,scale=e4m3")
    assert (got.zero_scales, got.subnormal_scales, got.largest_scales, got.blocks) == (2, 1, 0, 4)
    assert got.zero_scale_blocks == 0.5
    assert "scales: zero 50.000%, subnormal 25.000%" in repr(got)
    assert got.underflow_rate == 0.25  # zeros of a block of zeros do not count as underflow
    got = measure(x, "nvfp4")
    assert (got.zero_scale_blocks, got.largest_scales, got.blocks) == (0.25, 1, 4)
    assert "scales: tensor scale 0.000372024, zero 25.000%, subnormal 25.000%, the largest 25.000%" in repr(got)
    assert "zero_scale_blocks" in got.as_dict()
    assert not [name for name in measure(x, "nvfp4", per=0).as_dict() if name.endswith("_scales")]
    with pytest.raises(AttributeError, match="not counted along an axis"):
        _ = measure(x, "nvfp4", per=0).zero_scale_blocks
    assert "scales" not in repr(measure(x, "mxfp4_e2m1"))


def test_rules_that_look_at_elements_and_large_arrays_are_measured_by_the_engine(monkeypatch):
    x = sample("engine", (6, 48))
    for options in ({"scale_rule": "four_over_six_squared"}, {}):
        monkeypatch.setattr(statistics, "FEW", 0)
        rows, _ = naive(x, "nvfp4", (1, 16), **options)
        assert_agrees(measure(x, "nvfp4", **options), list(rows.values()))


def test_a_tensor_scale_that_is_wrong():
    for given, message in ((-1.0, "positive and finite"), ("column", "one of \\['row'\\]"), (0.1, "a float32 number")):
        with pytest.raises(ValueError, match=f"'tensor_scale' must be {message}"):
            measure(np.ones((2, 16), np.float32), "nvfp4", tensor_scale=given)
    with pytest.raises(ValueError, match="'tensor_scale' must be left out for mxint8"):
        measure(np.ones((2, 16), np.float32), "mxint8", tensor_scale=1.0)


@pytest.mark.parametrize("rounding", ["rne", "rna", "rtz", "rtp", "rtn", "rto", "sr"])
@pytest.mark.parametrize("fmt", formats.names("e8m0"))
def test_who_is_clamped_beside_the_largest_value(fmt, rounding):
    """Check which numbers around the largest value count as clamped."""
    element = formats.get(fmt).element
    gap = 2.0 ** (element.emax - element.mantissa_bits)
    y = element.max + gap * np.array([-1, 0, 0.25, 0.5, 0.75, 1, 1.25, 2, 8], np.float32)
    y = np.repeat(np.stack([y, -y]).ravel(), 4).astype(np.float32)
    words = np.arange(y.size, dtype=np.uint32) if rounding == "sr" else None
    options = {"rounding": rounding, "scales": np.array([127], np.uint8)}
    if words is not None:
        options |= {"random_bits": words, "sr_bits": 2}
    rows, _ = naive(y, fmt, (y.size,), **options)
    got = measure(y, fmt, block_size=y.size, per=0, **options)
    assert got.clamped.tolist() == [row["clamped"] for row in rows.values()]
    assert 0 < got.clamped.sum() < y.size
    assert got.beyond_max.tolist() == [row["beyond_max"] for row in rows.values()]


@pytest.mark.parametrize("layout", [{"axis": 0, "block_size": 4}, {"block_shape": (4, 4)}, {"block_size": 32}])
@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxint4"])
def test_groups(fmt, layout, monkeypatch):
    monkeypatch.setattr(statistics, "CHUNK", 24)
    x = sample("groups")
    blocks = resolve_blocks(x.shape, 32, **layout)
    rows, scales = naive(x, fmt, blocks)
    by_block = measure(x, fmt, per="block", **layout)
    assert by_block.size.shape == scales_shape(x.shape, blocks)
    for block in np.ndindex(by_block.size.shape):
        fields = {name: values[block] for name, values in vars(by_block).items() if values is not None}
        one = statistics.Statistics(**fields)
        assert_agrees(one, [row for index, row in rows.items() if block_of(index, blocks) == block])
    assert np.array_equal(by_block.nan_blocks, scales == 255)
    assert np.array_equal(by_block.blocks_beyond_max, by_block.beyond_max > 0)
    for axis in (0, -1):
        by_axis = measure(x, fmt, per=axis, **layout)
        for place in range(x.shape[axis]):
            one = statistics.Statistics(**{f: None if v is None else v[place] for f, v in vars(by_axis).items()})
            assert_agrees(one, [row for index, row in rows.items() if index[axis] == place])


@pytest.mark.parametrize("offset_range", ["exact", "half"])
def test_asymmetric(offset_range, monkeypatch):
    monkeypatch.setattr(statistics, "CHUNK", 40)
    x = sample("asymmetric") + np.float32(3)
    options = {"offset": "float16", "offset_range": offset_range}
    rows, _ = naive(x, "mxint4", (1, 8), **options)
    assert_agrees(measure(x, "mxint4", blocks=(1, 8), **options), list(rows.values()))


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxint4"])
def test_the_row_loops_give_the_same(fmt, monkeypatch):
    x = sample("paths")
    few = measure(x, fmt, block_size=8)
    monkeypatch.setattr(statistics, "FEW", 0)
    assert measure(x, fmt, block_size=8) == few


def test_differences_are_rounded_to_float32_before_they_are_judged():
    # The offset is 2**-24. In float32, the numbers minus the offset are 1.75 and -1.75.
    x = np.array([1.75 + 2.0**-23, -1.75], np.float32)
    got = measure(x, "mxint4", offset="float16", scale_rule="rceil")
    assert (got.beyond_max, got.at_max) == (0, 2)
    rows, _ = naive(x, "mxint4", (2,), offset="float16", scale_rule="rceil")
    assert_agrees(got, list(rows.values()))


def test_rates_leave_out_what_was_not_measured():
    x = np.full((4, 2), 0.97, np.float32)
    x[0, 0], x[1] = np.nan, 0.5
    got = measure(x, "mxfp8_e4m3", block_size=2)
    assert (got.size, got.measured, got.nonfinite, got.clamped) == (8, 6, 1, 4)
    assert got.clamp_rate == got.beyond_max_rate == got.max_code_rate == 4 / 6
    assert got.underflow_rate == 0
    assert got.overflowing_blocks == 2 / 3
    assert got.mse == pytest.approx(4 / 6 * (0.97 - 0.875) ** 2, rel=1e-6)


def test_given_scales_and_ieee_overflow():
    x = sample("scales")
    scales = generator("scales").integers(118, 126, (4, 3)).astype(np.uint8)
    for overflow in ("saturate", "ieee"):
        options = {"scales": scales, "overflow": overflow}
        rows, _ = naive(x, "mxfp8_e5m2", (1, 8), **options)
        got = measure(x, "mxfp8_e5m2", blocks=(1, 8), **options)
        assert_agrees(got, list(rows.values()))
    x = np.full((1, 8), 500.0, np.float32)
    lost = measure(x, "mxfp8_e4m3", scales=np.array([[127]], np.uint8), overflow="ieee")
    assert (lost.clamped, lost.compared, lost.measured) == (8, 0, 8)
    assert math.isnan(lost.mse)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_other_types(dtype):
    import ml_dtypes  # noqa: F401

    with np.errstate(over="ignore"):
        x = sample("types").astype(dtype)
    rows, _ = naive(x, "mxfp6_e2m3", (1, 8))
    assert_agrees(measure(x, "mxfp6_e2m3", blocks=(1, 8)), list(rows.values()))


def test_extreme_magnitudes_of_float64():
    x = np.array([1e308, -1e308, 5e-324, 0.0, 1.0, 1.0, 1.0, 1.0])
    got = measure(x, "mxfp4_e2m1", block_size=4)
    rows, _ = naive(x, "mxfp4_e2m1", (4,))
    for name in COUNTS:
        assert getattr(got, name) == sum(row[name] for row in rows.values())
    assert got.sum_x2 == math.inf  # the documentation says that squares must be in the range of float64


def test_element_policy_keeps_the_block():
    x = np.array([1.0, np.inf, 0.5, 2.0], np.float32)
    got = measure(x, "mxfp4_e2m1", nonfinite="element")
    assert (got.measured, got.nonfinite, got.nan_blocks) == (3, 1, 0)


def test_nan_under_the_element_policy_is_named_by_its_place_in_the_whole_array(monkeypatch):
    monkeypatch.setattr(statistics, "CHUNK", 8)
    x = np.ones((4, 8), np.float32)
    x[2, 5] = np.nan
    with pytest.raises(
        ValueError, match=r"free of NaN for e2m1, which has no NaN code; there is a NaN at index \(2, 5\)"
    ):
        measure(x, "mxfp4_e2m1", nonfinite="element")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per": "row"}, "'per' must be one of"),
        ({"per": 2}, "'per' must be between -2 and 1"),
        ({"nonfinite": "raise"}, "'nonfinite' must be one of"),
        ({"rounding": "sr"}, "'random_bits' or 'seed' must be given"),
        ({"scales": np.zeros((1, 1), np.uint8)}, "'scales' must be of shape"),
        ({"rounding": "sr", "random_bits": np.zeros(3, np.uint32)}, "'random_bits' must be of shape"),
        ({"offset_range": "half"}, "'offset_range' must be left out"),
        ({"scale_rule": "flor"}, "did you mean 'floor'"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        measure(np.ones((4, 64), np.float32), "mxint8", **options)


@pytest.mark.parametrize("shape", [(), (0,), (0, 5), (1,)])
def test_small_shapes(shape):
    x = np.ones(shape, np.float32)
    got = measure(x, "mxfp8_e4m3")
    assert got.size == got.measured == x.size
    assert got.mse == 0 if x.size else math.isnan(got.mse)
    assert np.shape(measure(x, "mxfp8_e4m3", per="block").size) == scales_shape(shape, (32,) * len(shape))


def test_the_axis_of_a_scalar_is_refused():
    with pytest.raises(ValueError, match="'per' must be 'tensor' or 'block' for an array without axes"):
        measure(np.float32(1), "mxint8", per=0)
    # Regression: axis=True was read as axis 1.
    with pytest.raises(TypeError, match="'per' must be 'tensor', 'block' or an axis, not True"):
        measure(np.ones((4, 64)), "mxint8", per=True)


def test_derived_figures():
    x = np.array([0.897, 0.896, 0.884, 0.885, 0.904], np.float32)
    got = measure(x, "mxfp8_e4m3")
    error = 0.875 - x.astype(float)
    assert got.rmse == pytest.approx(np.sqrt(np.mean(error**2)))
    assert got.normalized_rmse == pytest.approx(np.linalg.norm(error) / np.linalg.norm(x))
    assert got.sqnr_db == pytest.approx(-20 * math.log10(got.normalized_rmse))
    assert got.bias == pytest.approx(error.mean())
    assert got.gain == pytest.approx(0.875 * x.sum(dtype=float) / np.dot(x.astype(float), x))
    # Rounding gives 448 even without saturation, so no number is clamped.
    assert (got.beyond_max_rate, got.max_code_rate, got.clamp_rate) == (1.0, 1.0, 0.0)
    assert measure(np.float32([0.97]), "mxfp8_e4m3").clamp_rate == 1.0
    assert measure(np.float32([0.5]), "mxfp8_e4m3").sqnr_db == math.inf


def test_as_dict_has_everything_that_applies():
    x = sample("dict")
    assert measure(x, "mxint8").as_dict()["overflowing_blocks"] == measure(x, "mxint8").overflowing_blocks
    along = measure(x, "mxint8", per=0)
    assert "overflowing_blocks" not in along.as_dict()
    with pytest.raises(AttributeError, match="not counted along an axis"):
        _ = along.overflowing_blocks


def test_repr_is_for_people():
    x = sample("repr")
    text = repr(measure(x, "mxfp8_e4m3"))
    assert text.startswith("<Statistics of 80 elements, 60 of them not compared")
    assert "SQNR" in text
    assert repr(measure(x, "mxfp8_e4m3", per="block")).startswith("<Statistics of (4, 1) groups: normalized R-MSE")
    assert "nothing measured" in repr(measure(np.full((2, 4), np.nan), "mxint8", per=0))
    text = "<Statistics of 2 elements: nothing measured (no finite element outside NaN blocks)>"
    assert repr(measure([1.0, np.nan], "mxfp8_e4m3")) == text


def test_memory_is_bounded_and_a_memory_map_stays_on_disk(tmp_path, monkeypatch):
    path = tmp_path / "x.npy"
    np.save(path, generator("memory").standard_normal((512, 1024)).astype(np.float32))
    monkeypatch.setattr(statistics, "CHUNK", 1 << 13)
    mapped = np.load(path, mmap_mode="r")
    seen = []
    measure(mapped[:128], "mxfp8_e4m3")  # compile before memory is measured
    tracemalloc.start()
    got = measure(mapped, "mxfp8_e4m3", progress=lambda done, total: seen.append((done, total)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < mapped.nbytes
    assert len(seen) == 64
    assert seen[-1] == (mapped.size, mapped.size)
    whole = measure(np.load(path), "mxfp8_e4m3")
    assert got.beyond_max == whole.beyond_max
    assert got.mse == pytest.approx(whole.mse, rel=1e-12)


#: Figures of claims M3 and M4 for N(0, 1) in blocks of 32: the percentage of elements that overflow
#: under the scale rules floor and even, and the mean squared error of floor, even, ceil and rceil.
NORMAL = {
    "mxfp8_e4m3": ((0.8574, 0.5482), (0.00086, 0.00076, 0.00070, 0.00070)),
    "mxfp4_e2m1": ((2.3434, 0.6221), (0.01321, 0.01250, 0.02077, 0.01331)),
}


@pytest.mark.parametrize("fmt", NORMAL)
def test_normal_numbers_overflow_and_err_as_quadrature_says(fmt):
    x = generator("normal").standard_normal((1 << 14, 32)).astype(np.float32)
    overflow, mse = NORMAL[fmt]
    for rule, want in zip(("floor", "even", "ceil", "rceil"), (*overflow, 0, 0), strict=True):
        share = measure(x, fmt, scale_rule=rule, per=0).beyond_max_rate
        assert abs(100 * share.mean() - want) <= 5 * 100 * share.std() / math.sqrt(len(share)) + 5e-5
    for rule, want in zip(("floor", "even", "ceil", "rceil"), mse, strict=True):
        errors = measure(x, fmt, scale_rule=rule, per=0).mse
        assert abs(errors.mean() - want) <= 5 * errors.std() / math.sqrt(len(errors)) + 5e-6


def test_the_package_loads_names_when_asked():
    assert mx.analysis.measure is measure
    assert "measure" in dir(mx.analysis)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mx.analysis.nothing
