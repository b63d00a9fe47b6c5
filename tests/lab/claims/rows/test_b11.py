"""Tests of claim B11: the stored study, a seed that the test trains, and made-up tables."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from mxnum.lab.claims import Context, Verdict, reproduce
from mxnum.lab.claims.rows import b11

pytest.importorskip("scipy", reason="the extra experiments is not installed")


RESULTS = Path(__file__).parents[4] / "docs" / "lab" / "results"


def test_the_stored_study(checked):
    evidence = checked("B11").evidence
    held = {s.what: s.holds for s in evidence.statements}
    assert held.pop("in larger vocabularies the gap has the size predicted for a model at rest") is None
    assert (
        held.pop("with 4,096 symbols, after 1,600 steps, the gap has the size predicted for a model at rest") is False
    )
    assert (
        held.pop("with 4,096 symbols and 7.4 million tokens the gap has the size predicted for a model at rest") is None
    )
    assert held.pop("the analysis gives the bias of the target's component in NVFP4 to within 0.005") is None
    to_the_end = "in models trained until float32's loss is 0.010 above the entropy, "
    assert held.pop(to_the_end + "the gap has the derived size") is None
    where = "in 4 bits with a centred gradient, the gap has the derived size"
    assert held.pop(to_the_end + where) is False
    in_e2m1 = "in E2M1 with a factor on the loss, the gap has the size that a simulation with the kernels predicts"
    assert held.pop(in_e2m1) is False
    weights = "output gradients rounded only in the products for weight gradients cause more than half of E4M3's gap"
    assert held.pop(weights) is False
    assert held.pop(f"{weights} in models trained to the end") is False
    assert (
        held.pop(
            "on text, the mean row of the last layer is large if E2M1 with 'even' or 'rceil' is rounded to nearest, "
            "and small if gradients are rounded stochastically"
        )
        is False
    )
    assert (
        held.pop(
            "with 4,096 symbols of 256 classes and 6.6 million tokens the gap has the size predicted for a model at "
            "rest"
        )
        is False
    )
    end = "in models trained to the end, "
    assert (
        held.pop(end + "overflow causes the gap of E5M2, E2M3, E3M2, because rceil leaves less than a fifth of the gap")
        is False
    )
    assert held.pop(end + "the format of the gradients decides the gap, not the format of the weights") is False
    open_ = {what for what, holds in held.items() if holds is None}
    assert len(open_) == 6, "two statements on 4 bits, two on text, two on recipes trained to the end"
    assert set(held.values()) == {True, None}
    assert all(c.agrees for c in evidence.comparisons)
    assert evidence.comparisons[0].claimed == pytest.approx(0.0504, abs=5e-4)
    assert "p 0.031 on 6 seeds" in evidence.statements[0].numbers


def test_numbers_state_differences_inside_the_limits(checked):
    """Check that a statement shows its measured difference even if it is within the limit."""
    evidence = checked("B11").evidence
    numbers = {s.what: s.numbers for s in evidence.statements}
    assert (
        "+0.0693, predicted 0.0678 (0.0537 by the kernels)"
        in numbers["with 1,024 symbols and 6.6 million tokens the gap has the size predicted for a model at rest"]
    )
    assert (
        "+0.0806, predicted 0.0687 (0.0526 by the kernels)"
        in numbers["with 4,096 symbols and 18.0 million tokens the gap has the size predicted for a model at rest"]
    )
    (below,) = (text for what, text in numbers.items() if "the final loss equals float32's" in what)
    assert below == "gap of -0.0050 nats; the loss is below float32's on 6 of 6 seeds"
    (centred,) = (text for what, text in numbers.items() if "in 4 bits with a centred gradient, the gap has" in what)
    assert centred.endswith("without centring, NVFP4's gap is +0.0164 and is smaller on 6 of 6 seeds"), (
        "centring does not repair it"
    )
    assert "share one source" in evidence.note
    assert "E4M3's gap is 0.09 nats with floor and 0.0005 with rceil" in evidence.answer
    assert "in 4 bits" in evidence.answer.split("Largest errors:")[1]


def test_gap_that_rceil_leaves_refutes_the_claim(tmp_path):
    table = json.loads((RESULTS / b11.STUDY).read_text())
    table["arms"]["last x 1, rceil"] = table["arms"]["last x 1"]
    (tmp_path / "logits").mkdir()
    (tmp_path / b11.STUDY).write_text(json.dumps(table))
    evidence = reproduce(["B11"], results=tmp_path)["B11"].evidence
    assert [s.holds for s in evidence.statements if "rceil removes" in s.what] == [False]
    assert "is 0.09 nats with floor and 0.0922 with rceil." in evidence.answer
    assert evidence.verdict == Verdict.CORRECTED
    assert b11.leaves("", [0.03], [0.1]).holds is None


def test_other_settings():
    """Check the statements about the study `logits-more` with made-up gaps."""

    def arm(gap, rest=0.0):
        return {"runs": [{"seed": s, "evaluation": 3 + s / 10 + gap} for s in range(6)], "at_rest": rest}

    gaps = {"float32": arm(0), "E4M3": arm(0.1), "E2M3": arm(0.01), "E4M3, smoothing 0.1": arm(0.03)}
    gaps |= {"E5M2, centred": arm(0.05, 0.05), "E3M2, centred": arm(0.04, 0.05), "E4M3, smoothing 0.2": arm(0.01)}
    gaps |= {"E4M3, centred, vocabulary 256": arm(0.06, 0.064), "E4M3, centred, vocabulary 1024": arm(0.03, 0.068)}
    gaps |= {f"E4M3, rceil, vocabulary {size}": arm(left) for size, left in ((256, 0.01), (1024, 0.05))}
    found = b11.of_other_settings({"control": "float32", "controls": {}, "arms": gaps})
    assert [s.holds for s in found] == [True, None, True, False, True, False]
    numbers = {"E5M2, centred": (0.05, 0.05), "E3M2, centred": (0.04, 0.05), "E2M3": (0.01, 0)}
    told = (f"{arm} +{gap:.4f}, predicted {rest:.4f}" for arm, (gap, rest) in numbers.items())
    assert found[0].numbers == "; ".join(told)


@pytest.mark.parametrize(
    ("gap", "above", "near", "holds"),
    [(0.06, 0.05, 0.1, True), (0.03, 0.05, 0.1, False), (0.045, 0.05, 0.1, None), (0.06, 0.2, 0.1, None),
     (0.06, 0.05, 0.02, None), (0.06, 0.01, 0.02, True)],
)  # fmt: skip
def test_a_longer_study(gap, above, near, holds):
    """Check that a study is undecided if float32's loss is more than `near` above the entropy."""

    def arm(loss):
        runs = [{"seed": s, "evaluation": loss, "entropy": [2.7, 2.7]} for s in range(3)]
        setting = {"vocabulary": 4096, "classes": 256, "steps": 1000, "sequences": 64, "context": 32}
        return {"runs": runs, "at_rest": 0.069, "experiment": setting}

    arms = {"float32": arm(2.7 + above), "E4M3, centred": arm(2.7 + above + gap)}
    (found,) = b11.trained_longer({"control": "float32", "controls": {}, "arms": arms}, near)
    assert found.holds is holds
    assert found.what.startswith("with 4,096 symbols of 256 classes and 2.0 million tokens")
    assert "3 seeds" in found.numbers


@pytest.mark.parametrize(("above", "size", "below", "e2m1", "wrong"), [
    (0.01, 0.05, 0.0, 0.16, {}),
    (0.01, 0.085, 0.0, 0.16, {"the gap has the derived size": False}),
    (0.01, 0.05, -0.03, 0.16, {"with a factor that removes the overflow, the final loss equals float32's": False}),
    (0.01, 0.05, 0.0, 0.2,
     {"in 4 bits with a centred gradient, the gap has the derived size": None}),
    (0.03, 0.1, 0.0, 0.16, None),
])  # fmt: skip
def test_the_study_to_the_end(above, size, below, e2m1, wrong):
    rests = {"last x 1": (0.09, 0.05), "last x 1, stochastic": (0.1, 0.05), "all": (0.09, 0.05), "E2M3": (0.01, 0.0)}
    rests["NVFP4"] = 0.01, 0.007
    rests |= {f"{arm}, centred": (size, 0.05) for arm in ("last x 1", "E5M2", "E3M2")}
    rests |= {"last x 2^(1/8), centred": (0.015, 0.016), "E2M1, centred": (e2m1, 0.16), "NVFP4, centred": (0.02, 0.007)}
    mended = ("last x 1, rceil", "last x 1, 24 sequences", "all but last", "all, rceil", "E4M3, smoothing 0.1")
    rests |= dict.fromkeys((*mended, "E2M1, rceil, centred", "float32"), (0.0, 0.0))
    rests |= {f"last x 2^({k}/8)": (below, 0.0) for k in range(2, 8)}

    def arm(gap, rest):
        runs = [{"seed": s, "evaluation": 2.7 + above + s / 10 + gap, "entropy": [2.7 + s / 10] * 2} for s in range(6)]
        return {"runs": runs, "at_rest": rest}

    arms = {name: arm(*values) for name, values in rests.items()}
    found = b11.to_the_end({"control": "float32", "controls": {}, "arms": arms})
    assert len(found) == 11
    for statement in found:
        start, what = statement.what.split(", ", 1)
        assert start == f"in models trained until float32's loss is {above:.3f} above the entropy"
        assert statement.holds is (None if wrong is None else wrong.get(what, True)), what


def made(gaps, above=0.01, rests=None, **setting):
    """Return a table of arms. The final loss of an arm is the entropy + `above` + its gap."""

    def arm(name, gap):
        runs = [{"seed": s, "evaluation": 2.7 + above + s / 10 + gap, "entropy": [2.7 + s / 10] * 2} for s in range(6)]
        return {"runs": runs, "at_rest": (rests or {}).get(name), "experiment": setting}

    arms = {name: arm(name, gap) for name, gap in gaps.items()}
    return {"control": "float32", "controls": {}, "arms": arms}


@pytest.mark.parametrize(
    ("sgd", "adam", "holds"),
    [(0.048, 0.044, [True, True]), (0.042, 0.044, [None, False]), (0.03, 0.02, [False, True])],
)
def test_without_adam(sgd, adam, holds):
    arm = "last x 1, centred"
    tables = (made({"float32": 0, arm: gap}, rests={arm: 0.0504}) for gap in (sgd, adam))
    assert [s.holds for s in b11.without_adam(*tables)] == holds


@pytest.mark.parametrize(
    ("gaps", "above", "holds"),
    [
        ((0.08, 0.085), 0.01, True),
        ((0.08, 0.055), 0.01, False),
        ((0.08, 0.07), 0.01, None),
        ((0.08, 0.085), 0.06, None),
    ],
)
def test_far_from_a_power_of_two(gaps, above, holds):
    arms = ("E4M3, centred", "E4M3, centred, 4096")
    table = made(
        {"float32": 0, "float32, 4096": 0} | dict(zip(arms, gaps, strict=True)), above, dict.fromkeys(arms, 0.09)
    )
    (found,) = b11.far_from_a_power_of_two(table)
    assert found.holds is holds
    assert f"{above:.3f} and {above:.3f} nats above the entropy" in found.numbers


@pytest.mark.parametrize(
    ("gap", "above", "holds"), [(0.042, 0.006, True), (0.068, 0.006, False), (0.05, 0.006, None), (0.042, 0.03, None)]
)
def test_just_below_a_power_of_two(gap, above, holds):
    table = made({"float32": 0, "E4M3, centred": gap}, above, {"E4M3, centred": 0.0643}, vocabulary=256, classes=16)
    table["arms"]["E4M3, centred"]["sampled_rest"] = 0.0415
    (found,) = b11.just_below_one(table)
    assert found.holds is holds
    assert "256 symbols of 16 classes" in found.what
    assert "the analysis of the targets' components alone predicts 0.0643" in found.numbers


def factors(**changed):
    """Return a table of `logits-factors` with the predicted gaps, except the gaps in `changed`."""
    study = tomllib.loads(
        (Path(b11.__file__).parents[2] / "studies/files/language_model/logits-factors.toml").read_text()
    )
    rests = {arm: 0.04 for arm in study["arms"] if arm.endswith("centred")}
    rests |= {"E5M2 x 2^(4/8), stochastic, centred": 0.0, "E5M2 x 2^(4/8), spread, centred": 0.001}
    table = made({"float32": 0, "float32, spread": 0} | rests | changed)
    table["controls"] = {arm: each["control"] for arm, each in study["arms"].items() if "control" in each}
    for arm, rest in rests.items():
        table["arms"][arm]["sampled_rest"] = rest
    assert set(table["arms"]) == set(study["arms"])
    return table


@pytest.mark.parametrize(("changed", "holds"), [
    ({}, [True, True, True, True]),
    ({"E5M2 x 2^(6/8), centred": 0.06}, [None, True, True, True]),
    ({"E5M2 x 2^(6/8), centred": 0.08}, [False, True, True, True]),
    ({"E2M3 x 2^(1/16), centred": 0.0}, [False, True, True, True]),
    ({"E2M1 x 2^(1/8), centred": 0.08}, [True, True, None, True]),
    ({"E2M1 x 2^(4/8), rceil, centred": 0.11}, [True, True, False, True]),
    ({"E5M2 x 2^(4/8), stochastic, centred": 0.03}, [True, False, True, True]),
    ({"E5M2 x 2^(2/8), rceil, centred": 0.025}, [True, None, True, True]),
    ({"E5M2 x 2^(2/8), rceil, centred": 0.0}, [True, False, True, True]),
    ({"E5M2 x 2^(4/8), spread, centred": 0.015}, [True, True, True, None]),
    ({"E4M3 x 1, spread, centred": 0.08}, [True, True, True, False]),
    ({"NVFP4 x 2^(4/8), centred": 0.5}, [True, True, True, True]),
])  # fmt: skip
def test_factors_in_other_formats(changed, holds):
    assert [s.holds for s in b11.of_factors(factors(**changed))] == holds


@pytest.mark.parametrize(("without", "holds"), [(0.035, True), (0.055, None), (0.07, False)])
def test_a_factor_in_nvfp4(without, holds):
    (found,) = b11.without_notice(factors(), made({"float32": 0, "NVFP4, centred": without}))
    assert found.holds is holds


def test_one_seed_is_trained_if_no_study_is_stored(tmp_path):
    pytest.importorskip("torch", reason="the extra torch is not installed")
    said = []
    evidence = b11.CLAIM.run(Context(tmp_path, tell=said.append))
    assert said == list(b11.QUICK)
    assert [s.holds for s in evidence.statements] == [True, True, True, None]
    assert evidence.verdict == Verdict.UNDECIDED


def test_without_torch_nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr(b11.importlib.util, "find_spec", lambda name: None)
    evidence = b11.CLAIM.run(Context(tmp_path))
    assert evidence.verdict == Verdict.NOT_RUN
    assert "install torch" in evidence.note
