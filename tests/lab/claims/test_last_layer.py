"""Tests of statements about the last layer of language models, on made-up tables."""

from __future__ import annotations

import pytest

pytest.importorskip("scipy", reason="the extra experiments is not installed")

from mxnum.lab.claims import last_layer
from tests.lab.claims.made_up import store, table

PLAIN = {"float32": (0, 1.5, 0)}


def made(arms):
    """Return a table of arms, each given as (gap, last `common_weight`, predicted gap).

    If the gap of an arm is 0, its run with seed s ends at a loss of 1 + s / 10 nats.
    """
    found = {}
    for name, (gap, row, rest) in (PLAIN | arms).items():
        ends = [1 + s / 10 + gap * (1 + s / 1000) for s in range(8)]
        runs = [{"seed": s, "evaluation": e, "measured": {"common_weight": [9, row]}} for s, e in enumerate(ends)]
        found[name] = {"runs": runs, "at_rest": rest}
    return table(found)


def judged(rule, arms):
    return [statement.holds for statement in rule(made(arms))]


def test_every_study_that_is_there_is_judged(context, parts):
    assert list(last_layer.judged(context)) == []
    store(context, "operands", made(parts)["arms"])
    assert len(list(last_layer.judged(context))) == 4
    store(context, "operands-converged", made(parts)["arms"])
    assert len(list(last_layer.judged(context))) == 9


@pytest.fixture
def parts():
    """Return the gaps of arms that round different parts of the model; all predictions hold."""
    shares = {"all": 1, "last layer": 0.9, "all but the last layer": 0.1, "gradients for weights": 0.6}
    shares |= dict.fromkeys(last_layer._OF_THE_FORWARD_PASS, 0.05)
    return {f"{name}, {part}": (share, 0, 0) for part, share in shares.items() for name in ("E4M3", "E2M1")}


def test_shares_of_operands(parts):
    how = last_layer.shares
    assert judged(how, parts) == [True] * 4
    assert judged(how, parts | {"E4M3, all but the last layer": (0.3, 0, 0)}) == [False, True, True, True]
    assert judged(how, parts | {"E2M1, last layer": (0.4, 0, 0)}) == [True, False, True, True]
    assert judged(how, parts | {"E4M3, attention": (0.2, 0, 0)}) == [True, True, False, True]
    assert judged(how, parts | {"E4M3, gradients for weights": (0.4, 0, 0)}) == [True, True, True, False]


def test_shares_of_operands_at_the_end(parts):
    """Check that all five predictions about shares of the gap can hold, and the fifth can fail."""
    how = last_layer.RULES["operands-converged"]
    assert judged(how, parts) == [True] * 5
    assert judged(how, parts | {"E2M1, gradients for weights": (0.3, 0, 0)})[4] is False


def test_recipes_at_the_end():
    kinds = {"E4M3": 0.1, "E5M2": 0.2, "E2M3": 0.05, "E3M2": 0.15, "E2M1": 0.1}
    arms = {kind: (gap, 0, 0) for kind, gap in kinds.items()}
    arms |= {f"{kind} rceil": (gap / 20, 0, 0) for kind, gap in kinds.items()}
    arms |= {f"{kind}, layer norm too": (2 * kinds[kind], 0, 0) for kind in ("E4M3", "E2M1")}
    arms |= {"E5M2 gradients, all else E4M3": (0.18, 0, 0), "E5M2 weights, all else E4M3": (0.12, 0, 0)}
    how = last_layer.recipes_at_the_end
    assert judged(how, arms) == [True] * 4
    assert judged(how, arms | {"E2M3 rceil": (0.04, 0, 0)})[1] is False
    assert judged(how, arms | {"E2M3 rceil": (0.02, 0, 0)})[1] is None
    same = {f"{kind}, layer norm too": (kinds[kind] * 1.01, 0, 0) for kind in ("E4M3", "E2M1")}
    assert judged(how, arms | {"E4M3, layer norm too": (0.1, 0, 0)})[2] is None
    assert judged(how, arms | {name: (kinds[name[:4]], 0, 0) for name in same})[2] is False
    assert judged(how, arms | {"E5M2 weights, all else E4M3": (0.19, 0, 0)})[3] is False


def test_gaps_that_grow_or_shrink():
    """Check that gaps are compared with those of a shorter study, whose small gaps are ignored."""
    kinds = "E4M3", "E5M2", "E2M3", "E3M2"
    names = [
        *kinds,
        "E2M1",
        *(f"{kind} rceil" for kind in kinds),
        *(f"{kind}, layer norm too" for kind in ("E4M3", "E2M1")),
    ]
    names += [f"E5M2 {part}, all else E4M3" for part in ("gradients", "weights")]
    arms = dict.fromkeys(names, (0.1, 0, 0))
    for then, holds in ((0.3, True), (0.15, None), (0.1, False)):
        early = {"E4M3": (then, 0, 0), "E2M1": (0.3 if holds else then, 0, 0), "E4M3 rceil": (0.01, 0, 0)}
        assert last_layer.grown(made(arms), made(early)).holds is holds


def test_statements_about_centring():
    arms = {"E2M1": (0.1, 0.1, 0.1), "E2M1, centred": (0.1, 0.1, 0.1)}
    for name in last_layer.DRIFTING:
        arms |= {name: (0.3, 3, 0.01), f"{name}, centred": (0.02, 0.1, 0.01)}
    how = last_layer.what_centring_takes
    assert judged(how, arms) == [True] * 4
    assert judged(how, arms | {"E2M1 SR, centred": (0.1, 0.1, 0.01)}) == [None, True, True, False]
    assert judged(how, arms | {"E2M1 SR, centred": (0.2, 0.1, 0.01)})[0] is False
    assert judged(how, arms | {"E2M1, centred": (0.04, 0.1, 0.04)})[1] is False
    assert judged(how, arms | {"E2M1 even": (0.3, 0.3, 0.01)})[2] is None
    assert judged(how, arms | {"E2M1 even": (0.3, 0.1, 0.01)})[2] is False


def test_on_text():
    arms = {"E4M3": (1, 0, 0), "E4M3 rceil": (0.1, 0, 0), "E4M3, last layer": (0.9, 0, 0)}
    arms |= {"E4M3, all but the last layer": (0.1, 0, 0), "E2M1": (0.2, 0, 0), "E2M1 even": (0.6, 3, 0)}
    arms |= {"E2M1 rceil": (0.7, 3, 0), "E2M1 rceil, SR gradients": (0.05, 1.5, 0)}
    how = last_layer.on_text
    assert judged(how, arms) == [True] * 5
    assert judged(how, arms | {"E4M3 rceil": (0.6, 0, 0)})[0] is False
    assert judged(how, arms | {"E4M3, last layer": (0.6, 0, 0)})[1] is None
    assert judged(how, arms | {"E2M1 even": (0.1, 3, 0)})[2] is False
    assert judged(how, arms | {"E2M1 rceil, SR gradients": (0.15, 1.5, 0)})[3] is False
    assert judged(how, arms | {"E2M1 even": (0.6, 1, 0), "E2M1 rceil": (0.7, 1, 0)})[4] is False


def test_without_the_mean_row():
    """Check that the statement holds only if centring removes most of both gaps.

    If 30 % of a gap remains, the statement is undecided. If 60 % remains, the statement is false.
    """
    costs = {"E4M3, logits": 1, "E4M3": 5, "E4M3, logits, centred weight": 0.02, "E4M3, centred weight": 0.5}

    def found(**changes):
        arms = {f"{name}, rate 0.192": (cost, 0, 0) for name, cost in (costs | changes).items()}
        return judged(last_layer.without_the_mean_row, arms)

    assert found() == [True]
    assert found(**{"E4M3, centred weight": 1.5}) == [None]
    assert found(**{"E4M3, logits, centred weight": 0.3}) == [None]
    assert found(**{"E4M3, logits, centred weight": 0.6}) == [False]
