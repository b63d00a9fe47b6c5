"""Tests that plots show the measurements, have labels, and load matplotlib only to draw."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mxnum import fake_quantize, quantize
from mxnum.analysis import explore, measure, synthetic

matplotlib = pytest.importorskip("matplotlib", reason="the extra plots is not installed")
matplotlib.use("Agg")

from mxnum import plots  # noqa: E402

X = synthetic.weights(64, 96)


@pytest.fixture(autouse=True)
def close():
    yield
    import matplotlib.pyplot

    matplotlib.pyplot.close("all")


def assert_labelled(ax):
    assert ax.get_xlabel()
    assert ax.get_ylabel() or ax.get_yticklabels()
    assert ax.get_title()


def test_histogram():
    x = np.where(np.arange(X.size).reshape(X.shape) % 7 == 0, 0, X).astype(np.float32)
    x[0, 0] = np.nan
    ax = plots.histogram(x, "mxfp4_e2m1", axis=0)
    assert_labelled(ax)
    assert sum(bar.get_height() for bar in ax.patches if hasattr(bar, "get_height")) > 0
    heights = [p.get_height() for p in ax.containers[0]]
    got = measure(x, "mxfp4_e2m1", axis=0)
    # Regression: bars showed shares of the nonzero elements, but the title showed a share of all
    # elements.
    zeros = np.count_nonzero(x[:32, 1:] == 0) + np.count_nonzero(x[32:] == 0)
    assert sum(heights) == pytest.approx(100 * (1 - zeros / got.measured))
    assert f"{got.beyond_max_rate:.2%} beyond" in ax.get_title()
    beyond = sum(p.get_height() for p in ax.containers[0] if p.get_x() >= 2.7)
    assert 0 < beyond <= 100 * got.beyond_max_rate
    assert {"smallest value ", "smallest normal ", "largest value "} == {t.get_text() for t in ax.texts}
    with pytest.raises(ValueError, match="finite element other than zero"):
        plots.histogram(np.zeros((4, 4)), "mxint8")


def test_scales_that_are_floats():
    """Check that plots of formats with float scales include the tensor scale, as `measure` does."""
    ax = plots.histogram(X, "nvfp4", scale_rule="rceil")
    assert ax.get_title().startswith("nvfp4, rceil: ")
    beyond = sum(p.get_height() for p in ax.containers[0] if p.get_x() >= 2.7)
    assert beyond == 0 == measure(X, "nvfp4", scale_rule="rceil").blocks_beyond_max
    assert "nvfp4, nearest" in plots.histogram(X, "nvfp4").get_title()
    ax = plots.block_map(X, "nvfp4")
    assert np.array_equal(ax.images[0].get_array(), measure(X, "nvfp4", per="block").normalized_rmse)
    assert "nvfp4, nearest, blocks of 1x16" in ax.get_title()
    lines = {line.get_label(): line.get_data() for line in plots.sawtooth("nvfp4", points=256).lines[1:]}
    assert list(lines) == ["nearest", "rceil"]
    for rule, (values, error) in lines.items():
        q = quantize(values, "nvfp4", block_size=1, scale_rule=rule).dequantize("float64")
        assert error == pytest.approx(100 * (q / values - 1), rel=1e-9, abs=1e-12)
    found = explore(X, formats=["mxfp4_e2m1", "nvfp4"], roundings=["rne"], organisations=["row"], block_sizes=[16])
    ax = plots.design_space(found)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "floor", "ceil", "even", "rceil", "nearest", "four_over_six_squared"
    ]  # fmt: skip


@pytest.mark.parametrize("quantity", ["normalized_rmse", "bias", "clamp_rate", "gain"])
def test_block_map(quantity):
    options = {"scale_rule": "even", "block_shape": (4, 8)}
    ax = plots.block_map(X, "mxfp4_e2m1", quantity=quantity, **options)
    assert_labelled(ax)
    want = getattr(measure(X, "mxfp4_e2m1", per="block", **options), quantity)
    assert np.array_equal(ax.images[0].get_array(), want)
    assert "4x8" in ax.get_title()
    assert ax.images[0].colorbar.ax.get_ylabel()


def test_block_map_of_something_else():
    with pytest.raises(ValueError, match="'x' must be a matrix"):
        plots.block_map(X[0], "mxint8")
    with pytest.raises(ValueError, match="'quantity' must be one of"):
        plots.block_map(X, "mxint8", quantity="mse")


def test_sawtooth():
    ax = plots.sawtooth("mxfp8_e4m3", points=1024)
    assert_labelled(ax)
    lines = {line.get_label(): line.get_data() for line in ax.lines[1:]}
    assert list(lines) == ["floor", "ceil", "even", "rceil"]
    for rule, (values, error) in lines.items():
        q = fake_quantize(values, "mxfp8_e4m3", block_size=1, scale_rule=rule)
        assert error == pytest.approx(100 * (q.astype(float) / values - 1), rel=1e-9, abs=1e-12)
    assert lines["floor"][1].min() == pytest.approx(-12.5, abs=0.3)
    styles = {(line.get_color(), line.get_linestyle()) for line in ax.lines[1:]}
    assert len({c for c, _ in styles}) == len({s for _, s in styles}) == 4
    # Regression: ticks beyond the end of the axis widened the axis.
    assert plots.sawtooth("mxint4", binades=1.2, points=64).get_xlim() == pytest.approx((1, 2**1.2))
    with pytest.raises(ValueError, match="'rounding' must be deterministic, not 'sr'"):
        plots.sawtooth("mxint4", rounding="sr")
    with pytest.raises(TypeError, match="'scale_rules' must be a list of choices, not 'floor'"):
        plots.sawtooth("mxint4", scale_rules="floor")


def test_design_space():
    found = explore(X, formats=["mxfp4_e2m1", "mxint4"], roundings=["rne"], organisations=["row"], block_sizes=[16])
    ax = plots.design_space(found)
    assert_labelled(ax)
    drawn = np.concatenate([c.get_offsets() for c in ax.collections])
    assert sorted(drawn[:, 0]) == [c.normalized_rmse for c in found.ranked()]
    assert "hollow" in ax.get_title()
    only = plots.design_space(found, asymmetric=False)
    assert "hollow" not in only.get_title()
    assert sum(len(c.get_offsets()) for c in only.collections) == 8
    with pytest.raises(ValueError, match="that some candidate has"):
        plots.design_space(found, format="mxint8")
    exact = explore(np.ones((4, 32)), formats=["mxint8"], roundings=["rne"], asymmetric=[False])
    with pytest.raises(ValueError, match="'exploration' must be one with candidates whose error is above zero"):
        plots.design_space(exact)  # Regression: the message called the argument 'wanted'.


def test_plots_are_drawn_on_the_given_axes(tmp_path):
    import matplotlib.pyplot

    figure, axes = matplotlib.pyplot.subplots(1, 2)
    assert plots.sawtooth("mxint4", points=16, ax=axes[1]) is axes[1]
    figure.savefig(tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_without_matplotlib_the_error_names_the_extra():
    probe = "import sys; sys.modules['matplotlib'] = None\nfrom mxnum import plots\nplots.sawtooth('mxint8', points=4)"
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert "Package 'matplotlib' is not installed; install it with pip install \"mxnum[plots]\"." in answer.stderr
