"""What stored studies of small language models say: the rules, on tables that are made for it."""

from __future__ import annotations

import json
import math
import re
from itertools import product

import numpy as np
import pytest

pytest.importorskip("scipy", reason="the extra experiments is not installed")

from mxnum.lab.claims import decoders
from mxnum.lab.claims.registry import Context
from mxnum.lab.theory import ScalingLaw

SEEDS = range(8)


def arm(gap, error=None, spread=1e-3):
    """Runs above a common loss by a gap, which differs a little from seed to seed."""
    measured = {} if error is None else {"error": [error, error]}
    return {
        "runs": [
            {"seed": s, "evaluation": 2 + s / 10 + (gap and gap + spread * (s - 3.5) / 8), "measured": measured}
            for s in SEEDS
        ]
    }


@pytest.fixture
def context(tmp_path):
    (tmp_path / "language").mkdir()
    return Context(tmp_path)


def store(context, name, arms):
    (context.results / "language" / f"{name}.json").write_text(
        json.dumps({"control": "float32", "controls": {}, "arms": arms})
    )


def recipes(**changes):
    arms = {"float32": arm(0), "bfloat16": arm(0.001), "E4M3": arm(0.01), "E2M3": arm(0.02), "E3M2": arm(0.04)}
    arms |= {"E4M3 forward only": arm(0.001), "E4M3 weights alone, bf16 activations": arm(0.009)}
    for rule, (nearest, drawn) in {"": (0.1, 0.1), " even": (0.1, 0.02), " rceil": (0.1, 0.2)}.items():
        arms |= {f"E2M1{rule}": arm(nearest, 0.2), f"E2M1{rule}, SR gradients": arm(drawn, 0.2)}
    for name in (*decoders._NAMED, *decoders._FURTHER):
        arms.setdefault(name, arm(0.03))
    return arms | changes


def test_nothing_is_said_of_what_was_not_run(context):
    for check in (decoders.stochastic_gradients, decoders.recipes, decoders.error_and_gap):
        (statement,) = check(context)
        assert statement.holds is None
        assert statement.numbers == "not run"
    assert decoders.mitigations(context) == decoders.organisation(context) == []


def test_stochastic_gradients(context):
    store(context, "recipes", recipes())
    assert [s.holds for s in decoders.stochastic_gradients(context)] == [None, True, False]
    assert "p 0.023 after Holm" in decoders.stochastic_gradients(context)[1].numbers, "eight seeds, three tests"


def test_recipes_and_mitigations(context):
    store(context, "recipes", recipes())
    found = {s.what.split(", ", 1)[1].split(":")[0]: s.holds for s in decoders.recipes(context)}
    assert [found[name] for name in ("E4M3", "E2M3", "E3M2")] == [True, True, False]
    assert found["E2M1 even, SR gradients"]
    assert not found["E2M1 rceil, SR gradients"]
    assert [s.holds for s in decoders.mitigations(context)] == [True, False]


def test_recipes_to_the_end_are_told_beside_those(context):
    arms = recipes(**{"E5M2": arm(0.2), "E5M2 forward only": arm(0.15), "E5M2 weights alone, bf16 activations": arm(0)})
    store(context, "recipes", recipes())
    store(context, "recipes-converged", arms)
    told = [s.what for s in decoders.recipes(context)]
    assert [sum(what.startswith(model) for what in told) for model in decoders.RECIPES.values()] == [len(told) / 2] * 2
    assert [s.holds for s in decoders.mitigations(context)] == [True, False, True, False, False, True]
    assert len(decoders.stochastic_gradients(context)) == 6
    assert len(decoders.error_and_gap(context)) == 6


def test_error_and_gap(context):
    rising = {f"recipe {k}": arm(0.01 * k, 0.05 * k) for k in range(1, 7)}
    alike = {f"E2M1 {k}": arm(0.01 * k, 0.2) for k in range(5)}
    store(context, "recipes", {"float32": arm(0), **alike, **rising})
    over_all, in_e2m1, in_4_bits = decoders.error_and_gap(context)
    assert over_all.holds
    assert in_e2m1.holds is in_4_bits.holds is None, "the errors of E2M1's recipes are equal"
    ((of_all, within),) = decoders.ranked(context)
    assert of_all > 0.5
    assert within is None


def test_within_4_bits_counts_every_4_bit_format(context):
    bits = {name: arm(0.01 * k, -0.1 * k) for k, name in enumerate(("E2M1", "E3M0", "INT4", "NVFP4", "E2M1 even"))}
    store(context, "recipes", {"float32": arm(0), "E4M3": arm(0.001, -1), **bits})
    assert decoders.error_and_gap(context)[2].holds is False
    assert decoders.ranked(context)[0][1] == pytest.approx(-1)


def test_organisation(context):
    of = {"row": 0.1, "column": 0.2, "tile": 0.15}
    flat = dict.fromkeys(of, 0.1)
    runs = [{"organisations": {"activations": of, "gradients": flat, "weights": of}}]
    store(context, "organisation", {"Markov source": {"runs": runs}})
    assert [s.holds for s in decoders.organisation(context)] == [True, True, False]
    assert decoders.organisation(context)[0].numbers == "R-MSE row 0.1000, column 0.2000, tile 0.1500"


def ending(*losses):
    found = [{"seed": s, "evaluation": loss, "entropy": [1, 1]} for s, loss in enumerate(losses)]
    return {"experiment": {"vocabulary": math.exp(5)}, "runs": found}


def test_lost_runs(context):
    """Half way from the best loss, 1, to the logarithm of the number of symbols, e**5, is 3."""
    assert decoders.lost_runs(context) == []

    kinds = {"float32": (2.9, 2.9), "E4M3": (3.1, 2.9), "E2M1": (3.1, 3.1), "E2M1 rceil, SR gradients": (2.9, 2.9)}
    arms = {f"{kind}, rate {r}": ending(*(pair * 4)) for kind, pair in kinds.items() for r in (1, 2)}
    store(context, "rates", arms)
    found = decoders.lost_runs(context)
    assert [s.holds for s in found] == [True, True, None]
    assert "rate 1: 4 and 0 of 8; rate 2: 4 and 0 of 8; p 0.0078" in found[0].numbers
    assert "p 1" in found[2].numbers


def test_a_ladder(context):
    """Laws that are given: one recipe costs 2 % throughout."""
    assert decoders.ladder(context) == ""
    law, random = ScalingLaw(A=20, B=900, E=decoders.ENTROPY, alpha=0.5, beta=0.6), np.random.default_rng(3)
    lines = ["arm,seed,parameters,tokens,loss"]
    arms = ["float32", "bfloat16", "E4M3", '"E4M3 weights alone, bf16 activations"', '"E2M1 rceil, SR gradients"']
    for arm, seed, n, d in product(arms, range(2), (2e3, 6e3, 2e4, 6e4), (1e5, 2e5, 4e5, 8e5)):
        loss = law(n, d) * (1.02 if arm == "E4M3" else 1) * math.exp(0.0005 * random.standard_normal())
        lines.append(f"{arm},{seed},{n:.0f},{d:.0f},{loss}")
    (context.results / "language" / "ladder.csv").write_text("\n".join(lines))
    text = decoders.ladder(context)
    assert "32 runs of each of 5 recipes, from 2,000 to 60,000 parameters and 100,000 to 800,000 tokens" in text
    assert re.search(r"that of E4M3, E \S+, can be told from it", text)
    assert re.search(r"that of E4M3 weights alone, bf16 activations, E \S+, cannot be told from it", text)
    low, high = (float(part) for part in re.search(r"interval (\S+) to ([\d.]+)\)", text).groups())
    assert low < decoders.ENTROPY < high

    four_bits = [lines[0]]
    four_bits += [line.replace("float32", "E2M1", 1) for line in lines if line.startswith("float32,")]
    four_bits += [line.replace("E4M3,", '"E2M1 even, SR gradients",', 1) for line in lines if line.startswith("E4M3,")]
    (context.results / "language" / "ladder-four-bits.csv").write_text("\n".join(four_bits))
    text = decoders.ladder(context)
    assert "each of 7 recipes" in text
    assert re.search(r"that of E2M1, E \S+, cannot be told from it", text)
    assert re.search(r"that of E2M1 even, SR gradients, E \S+, can be told from it", text)


def test_runs_that_are_lost_to_the_drift(context):
    assert decoders.lost_to_the_drift(context) == []
    fine, gone = (2.9,) * 6, (3.1,) * 6
    kinds = {"float32": fine, "E4M3": gone, "E4M3, all but the last layer": fine, "E4M3, logits": gone}
    kinds |= {f"E4M3, logits, {how}": fine for how in ("centred", "rceil", "factor")}
    kinds |= {"E2M1 even, logits": gone, "E2M1 even, logits, centred": fine}

    def judged(**changes):
        ends = kinds | {name.replace("_", " "): losses for name, losses in changes.items()}
        arms = {f"{kind}, rate {r}": ending(*(fine if r == 1 else end)) for kind, end in ends.items() for r in (1, 2)}
        store(context, "lost", arms)
        return [s.holds for s in decoders.lost_to_the_drift(context)]

    assert judged() == [True] * 4
    assert judged(**{"E4M3, logits": fine}) == [False, None, None, True], "nothing that could be saved"
    assert judged(**{"E4M3, logits, rceil": (3.1, *fine[1:])}) == [True, True, None, True]
    assert judged(**{"E2M1 even, logits, centred": gone}) == [True, True, True, False]


def test_what_the_drift_costs(context):
    assert decoders.cost_of_the_drift(context) == []
    costs = {"float32": 0, "E4M3": 2, "E4M3, all but the last layer": 0.01, "E4M3, logits": 1}
    costs |= {"E4M3, logits, centred": 0.1, "E4M3, logits, rceil": 0.3, "E4M3, logits, factor": 0.7}

    def judged(**changes):
        arms = {f"{name}, rate 0.192": arm(cost) for name, cost in (costs | changes).items()}
        path = context.results / "language" / "lost-again.json"
        path.write_text(json.dumps({"control": "float32, rate 0.192", "controls": {}, "arms": arms}))
        return [s.holds for s in decoders.cost_of_the_drift(context)]

    assert judged() == [True, True, True, None, False]
    assert judged(**{"E4M3, all but the last layer": 0.06, "E4M3": 0.5}) == [None, False, True, None, False]
    assert judged(**{"E4M3, all but the last layer": 0.2})[0] is False


def test_four_bits_in_two_layers(context):
    """Knowing nothing is 5 nats here, and float32 ends at 1."""
    assert decoders.four_bits_in_two_layers(context) == []
    ends = {"float32": (1, 0), "E2M1": (6, 2), "E2M1, all but the last layer": (1.2, 0), "E2M1, logits": (4, 2)}
    ends |= {"E2M1, logits, centred": (1.1, 0), "E2M1 even, SR gradients": (2, 0)}
    ends |= {"E2M1, forward only": (1.1, 0), "E2M1, gradients alone": (5, 2)}

    def judged(changes=None):
        arms = {}
        for name, (loss, row) in (ends | (changes or {})).items():
            arms[name] = ending(*(loss + s / 100 for s in range(4)))
            for run in arms[name]["runs"]:
                run["measured"] = {"common_weight": [9, row]}
        store(context, "two-layers", arms)
        return [s.holds for s in decoders.four_bits_in_two_layers(context)]

    assert judged() == [True] * 5 + [False], "even with stochastic gradients loses a nat without a mean row"
    assert judged({"E2M1 even, SR gradients": (1.4, 0)}) == [True] * 6
    assert judged({"E2M1": (4.98, 2)})[0] is None
    assert judged({"E2M1": (3, 2)})[0] is False
    assert judged({"E2M1, logits": (1.5, 2)})[1:3] == [False, None]
    assert judged({"E2M1, logits, centred": (3.9, 2)})[2] is False
    assert judged({"E2M1, forward only": (5, 2), "E2M1, gradients alone": (2, 2)})[4] is False
