from __future__ import annotations

import numpy as np
import pytest

from mxnum.lab.theory import ScalingLaw, fit_scaling_law, read_losses

N, D = (a.ravel() for a in np.meshgrid(np.geomspace(2e7, 1e9, 5), np.geomspace(3e8, 2e10, 5)))
LAW = ScalingLaw(0.3 * 1.4e8**0.45, 0.4 * 2.4e9**0.4, 1.1, 0.45, 0.4)
FEW = ("--draws", 20)


@pytest.fixture
def table(tmp_path):
    """Write a CSV table with the losses of two arms, and return its path."""
    rng = np.random.default_rng(0)
    lines = ["params,tokens,loss,arm"]
    for arm, factor in (("a", 1.0), ("b", 1.02)):
        losses = factor * LAW(N, D) * np.exp(0.001 * rng.standard_normal(N.size))
        lines += [f"{n},{d},{v},{arm}" for n, d, v in zip(N, D, losses, strict=True)]
    (tmp_path / "x.csv").write_text("\n".join([*lines, "1e8,1e9,,a"]) + "\n")
    return tmp_path / "x.csv"


def test_json_is_the_fit(run, table):
    want = fit_scaling_law(read_losses(table, where={"arm": "a"}))
    got = run.json("lab", "fit", table, "--where", "arm=a", "--against", "arm=b", "--at", "4e9,1e11", *FEW)
    assert got["law"] == {name: getattr(want.law, name) for name in ("A", "B", "E", "alpha", "beta")}
    assert (got["runs"], got["left_out"], got["starts"]) == (25, 1, 16)
    assert got["huber_loss"] == want.loss
    assert got["bootstrap"]["alpha"] == list(want.bootstrap(draws=20)["alpha"])
    assert got["profile"]["alpha"] == list(want.profile()["alpha"])
    assert got["against"]["told_apart"]
    assert got["against"]["distance"] == pytest.approx(0.02, rel=0.1)
    (forecast,) = got["forecasts"]
    assert forecast["low"] < forecast["loss"] < forecast["high"]


def test_table(run, table):
    printed = run("lab", "fit", table, "--where", "arm=a", "--against", "arm=b", "--at", "4e9,1e11", *FEW)
    assert printed.splitlines()[0].startswith("L = A/N^alpha + B/D^beta + E over 25 runs (ignoring 1 without a loss)")
    assert "'params'" in printed
    assert "The laws differ" in printed
    assert "N = 4e+09, D = 1e+11: loss 1." in printed
    assert "no law" not in printed


def test_a_law_beside_itself(run, table):
    """Check that a law does not differ significantly from itself."""
    printed = run("lab", "fit", table, "--where", "arm=a", "--against", "arm=a", *FEW)
    assert "The laws do not differ significantly in these runs." in printed
    assert "the median difference of their losses is 0.00%" in printed
    assert "seed" in run("lab", "fit", table, "--seed", "-1", status=2)


def test_losses_that_rise_are_called_no_law(run, tmp_path):
    rows = "\n".join(f"{n},{d},{1 + 30 / n**0.2 + d / 1e11}" for n, d in zip(N, D, strict=True))
    (tmp_path / "y.csv").write_text("N,D,L\n" + rows + "\n")
    assert "This is not a scaling law" in run("lab", "fit", tmp_path / "y.csv", *FEW)


def test_figure(run, table, tmp_path):
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    run("lab", "fit", table, "--where", "arm=a", *FEW, "--plot", tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--loss", "end"], "Option --loss must name a column of"),
        (["--where", "arm"], "Option --where must be written COLUMN=VALUE, not 'arm'."),
        # Regression: if two --where options named the same column, the first was silently ignored.
        (["--where", "arm=a", "--where", "arm=b"], "Option --where must give 'arm' only one value, not 'a' and 'b'."),
        (["--against", "arm=c"], "must have a row with arm=c; it has none."),
        (["--at", "1e9"], "Option --at must be written N,D with two positive numbers, not '1e9'."),
        (["--level", "2"], "Option --level must be between 0 and 1, not 2.0."),
        (["--against", "arm=b", "--draws", "5"], "Option --draws must be above 9 for the level 0.9, not 5."),
        (["--delta", "0"], "Option --delta must be positive, not 0.0."),
        (["--plot", "x.gif"], "Option --plot must be a .png, .svg or .pdf file"),
        (["--plot", "nowhere/x.png"], "No such folder: 'nowhere'."),
    ],
)
def test_what_is_refused(run, table, options, said):
    told = run("lab", "fit", table, *options, status=2)
    assert said in told
    assert told.count("\n") == 1
