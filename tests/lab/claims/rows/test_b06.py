"""Tests that the check of claim B6 gives the right verdict on made-up results."""

from __future__ import annotations

import pytest

from mxnum.lab.claims.rows import (
    b06,
)
from mxnum.lab.studies import studies
from tests.lab.claims.made_up import arm, ending, followed, mlp, runs, table

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


NEVER, ALWAYS = [None] * 12, [400 + 10 * i for i in range(12)]


def test_b6(tmp_path):
    arms = {f"FP32, rate {r:g}": runs(ALWAYS if r > 0.03 else NEVER) for r in studies.RATES}
    arms |= {f"E2M1, rate {r:g}": runs(ALWAYS if r > 0.015 else NEVER) for r in studies.RATES}
    arms |= {f"E4M3, rate {r:g}": runs(ALWAYS if r > 0.03 else NEVER) for r in studies.RATES}
    where = mlp(tmp_path, "critical-rate", arms)
    found = b06.CLAIM.run(where)
    assert [s.holds for s in found.statements] == [True, None, None]  # the last statement is about width 512
    assert found.answer == (
        "At the 5% level, small MLPs' loss jumps sooner in E2M1 than in FP32. Undecided: the paper's size."
    )
    assert found.number == "E2M1: p 0.00098 after Holm"
    lost, back = [(100 + i, None) for i in range(12)], [(100 + i, 300) for i in range(12)]
    arms = {"FP32, rate 0.1": followed(back), "E2M1, rate 0.1": followed(lost), "E4M3, rate 0.1": followed(lost)}
    for width, holds in ((32, True), (64, None)):  # only the test at width 32 was announced before the runs
        mlp(tmp_path, "runaway-32", arms, horizon=500, width=width)
        found = {s.what: s for s in b06.CLAIM.run(where).statements}
        assert found[f"width {width}: E2M1 runs away sooner than FP32"].holds is holds
        assert found[f"width {width}: E4M3 runs away sooner than FP32"].holds is None
    arms["E2M1, rate 0.1"] = followed(lost[:4] + back[4:])  # the exact test gives p = 0.125
    mlp(tmp_path, "runaway-32", arms, horizon=500, width=32)
    found = {s.what: s.holds for s in b06.CLAIM.run(where).statements}
    assert found["width 32: E2M1 runs away sooner than FP32"] is None


CALM, AWAY, BACK = None, (500, None), (500, 600)


@pytest.mark.parametrize(
    ("e4m3", "fp32", "holds"),
    [
        ([[CALM, CALM], [AWAY, BACK]], [[CALM, CALM], [CALM, CALM]], True),
        ([[AWAY, BACK], [AWAY, AWAY]], [[CALM, CALM], [AWAY, AWAY]], True),
        ([[CALM, CALM], [AWAY, AWAY]], [[CALM, CALM], [AWAY, AWAY]], False),
        ([[CALM, CALM], [AWAY, AWAY]], [[AWAY, AWAY], [AWAY, AWAY]], False),
        ([[CALM, AWAY], [AWAY, AWAY]], [[CALM, CALM], [CALM, CALM]], None),
        ([[CALM, CALM], [CALM, CALM]], [[CALM, CALM], [CALM, CALM]], None),
        ([[CALM], [AWAY]], [[CALM], [CALM]], None),
    ],
)
def test_rates_are_compared_where_something_rises_first(tmp_path, e4m3, fp32, holds):
    arms = {f"E4M3, rate {rate}": followed(spans) for rate, spans in zip((0.1, 0.2), e4m3, strict=True)}
    arms |= {f"FP32, rate {rate}": followed(spans) for rate, spans in zip((0.1, 0.2), fp32, strict=True)}
    (found,) = b06.at_the_size_of_the_paper(mlp(tmp_path, "paper-rates", arms))
    assert found.holds is holds
    assert found.what.startswith("E4M3 has excursions at a lower learning rate")
    assert "0.1: " in found.numbers
    (alone,) = b06.at_the_size_of_the_paper(mlp(tmp_path, "paper-rates", {"E4M3, rate 0.1": followed([AWAY, AWAY])}))
    assert (alone.holds, alone.numbers.rpartition("; ")[2]) == (None, "FP32: not run")


def test_lost_runs():
    """Check that a run counts as lost if its loss ends above 3, the mean of 1 and 5.

    1 is the best loss. 5 is the loss of a model that predicts all e**5 symbols as equally likely.
    """
    kinds = {"float32": (2.9, 2.9), "E4M3": (3.1, 2.9), "E2M1": (3.1, 3.1), "E2M1 rceil, SR gradients": (2.9, 2.9)}
    arms = {f"{kind}, rate {r}": ending(*(pair * 4)) for kind, pair in kinds.items() for r in (1, 2)}
    found = list(b06.lost_runs(table(arms)))
    assert [s.holds for s in found] == [True, True, None]
    assert "rate 1: 4 and 0 of 8; rate 2: 4 and 0 of 8; p 0.0078" in found[0].numbers
    assert "p 1" in found[2].numbers


def test_runs_that_are_lost_to_the_drift():
    fine, gone = (2.9,) * 6, (3.1,) * 6
    kinds = {"float32": fine, "E4M3": gone, "E4M3, all but the last layer": fine, "E4M3, logits": gone}
    kinds |= {f"E4M3, logits, {how}": fine for how in ("centred", "rceil", "factor")}
    kinds |= {"E2M1 even, logits": gone, "E2M1 even, logits, centred": fine}

    def judged(**changes):
        ends = kinds | {name.replace("_", " "): losses for name, losses in changes.items()}
        arms = {f"{kind}, rate {r}": ending(*(fine if r == 1 else end)) for kind, end in ends.items() for r in (1, 2)}
        return [s.holds for s in b06.lost_to_the_drift(table(arms))]

    assert judged() == [True] * 4
    assert judged(**{"E4M3, logits": fine}) == [False, None, None, True], "no run is lost"
    assert judged(**{"E4M3, logits, rceil": (3.1, *fine[1:])}) == [True, True, None, True]
    assert judged(**{"E2M1 even, logits, centred": gone}) == [True, True, True, False]


def test_what_the_drift_costs():
    costs = {"float32": 0, "E4M3": 2, "E4M3, all but the last layer": 0.01, "E4M3, logits": 1}
    costs |= {"E4M3, logits, centred": 0.1, "E4M3, logits, rceil": 0.3, "E4M3, logits, factor": 0.7}

    def judged(**changes):
        arms = {f"{name}, rate 0.192": arm(cost) for name, cost in (costs | changes).items()}
        return [s.holds for s in b06.cost_of_the_drift(table(arms, "float32, rate 0.192"))]

    assert judged() == [True, True, True, None, False]
    assert judged(**{"E4M3, all but the last layer": 0.06, "E4M3": 0.5}) == [None, False, True, None, False]
    assert judged(**{"E4M3, all but the last layer": 0.2})[0] is False


def test_four_bits_in_two_layers():
    """Check statements about a model of two layers that is trained in 4 bits.

    The loss of float32 is 1 nat, and the loss of a model that guesses is 5 nats.
    """
    ends = {"float32": (1, 0), "E2M1": (6, 2), "E2M1, all but the last layer": (1.2, 0), "E2M1, logits": (4, 2)}
    ends |= {"E2M1, logits, centred": (1.1, 0), "E2M1 even, SR gradients": (2, 0)}
    ends |= {"E2M1, forward only": (1.1, 0), "E2M1, gradients alone": (5, 2)}

    def judged(changes=None):
        arms = {}
        for name, (loss, row) in (ends | (changes or {})).items():
            arms[name] = ending(*(loss + s / 100 for s in range(4)))
            for run in arms[name]["runs"]:
                run["measured"] = {"common_weight": [9, row]}
        return [s.holds for s in b06.four_bits_in_two_layers(table(arms))]

    assert judged() == [True] * 5 + [False], "E2M1 even, SR gradients: a gap of 1 nat, no mean row"
    assert judged({"E2M1 even, SR gradients": (1.4, 0)}) == [True] * 6
    assert judged({"E2M1": (4.98, 2)})[0] is None
    assert judged({"E2M1": (3, 2)})[0] is False
    assert judged({"E2M1, logits": (1.5, 2)})[1:3] == [False, None]
    assert judged({"E2M1, logits, centred": (3.9, 2)})[2] is False
    assert judged({"E2M1, forward only": (5, 2), "E2M1, gradients alone": (2, 2)})[4] is False


def test_lost_in_other_settings():
    """Check that a run counts as lost if its loss ends above 4.66, the mean of 1 and ln 4096.

    1 is the entropy, the best loss. ln 4096 is the loss of a model that knows nothing.
    """

    def settings(floor, rceil):
        kinds = {"float32": 0, "E4M3": floor, "E4M3 rceil": rceil}
        arms = {f"deep, {kind}": gap for kind, gap in kinds.items()}
        # In the "wide" arms, even float32 does not learn the task.
        arms |= {f"wide, {kind}": 3.5 + gap for kind, gap in kinds.items()}
        arms = {
            name: {
                "runs": [
                    {"seed": s, "evaluation": 1 + s / 10 + gap * (1 + s / 1000), "entropy": [1, 1]} for s in range(8)
                ],
                "experiment": {"vocabulary": 4096},
            }
            for name, gap in arms.items()
        }
        return [s.holds for s in b06.lost_elsewhere(table(arms))]

    assert settings(2, 0.01) == [True, None]
    assert settings(0.4, 0.01) == settings(2, 0.2) == [False, None]
