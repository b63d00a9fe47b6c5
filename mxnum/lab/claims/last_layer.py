"""What small language models say of their last layer: which operand costs, what centring takes away, and text; for B11.

The rules are those of `docs/lab/results/language/README.md`, written before the models were trained.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum.lab.claims.decoders import PLAIN, Table, ends_of, gaps, losses, study, words
from mxnum.lab.claims.evidence import Statement
from mxnum.lab.claims.judged import LEVEL, below, decided
from mxnum.lab.claims.registry import Context
from mxnum.lab.studies.inference import holm, sign_flip

_OF_THE_FORWARD_PASS = "layer norm", "embedding", "attention", "weights", "activations"
#: Recipes whose gradient of the logits alone is rounded: plain, and centred.
_DRIFTING = "E2M1 even", "E2M1 rceil", "E2M1 SR"


def mean(table: Table, arm: str) -> float:
    """The mean gap of an arm."""
    return float(np.mean(gaps(table, arm)))


def rows(table: Table, arm: str) -> float:
    """The norm of the mean row of the last layer at the last look, over seeds."""
    return float(np.mean([run["measured"]["common_weight"][-1] for run in table["arms"][arm]["runs"]]))


def shares_of_operands(context: Context) -> list[Statement]:
    """The share of a format's gap that each part alone has."""
    return [
        statement
        for name, when in (("operands", ""), ("operands-converged", ", trained to the end"))
        if (table := study(context, name)) is not None
        for statement in _shares(table, when)
    ]


def _shares(table: Table, when: str) -> list[Statement]:
    def share(name: str, part: str) -> float:
        return mean(table, f"{name}, {part}") / mean(table, f"{name}, all")

    last, rest, of_weights = (
        {name: share(name, part) for name in ("E4M3", "E2M1")}
        for part in ("last layer", "all but the last layer", "gradients for weights")
    )
    others = {part: share("E4M3", part) for part in _OF_THE_FORWARD_PASS}
    made = [
        Statement(
            f"of E4M3's gap the last layer has more than 0.8 and all others less than 0.2{when}",
            last["E4M3"] > 0.8 and rest["E4M3"] < 0.2,
            f"{last['E4M3']:.2f} and {rest['E4M3']:.2f}",
        ),
        Statement(
            f"of E2M1's gap the last layer has more than half{when}",
            last["E2M1"] > 0.5,
            f"{last['E2M1']:.2f}; all others {rest['E2M1']:.2f}, gradients for weights {of_weights['E2M1']:.2f}",
        ),
        Statement(
            f"of E4M3's gap layer norm, embedding, attention, weights, activations have less than a tenth each{when}",
            max(others.values()) < 0.1,
            ", ".join(f"{part} {value:.2f}" for part, value in others.items()),
        ),
        Statement(
            f"of E4M3's gap the gradients for weights alone have more than half{when}",
            of_weights["E4M3"] > 0.5,
            f"{of_weights['E4M3']:.2f}",
        ),
    ]
    if when:  # expected of these alone
        what = f"of E2M1's gap the gradients for weights alone have more than a third{when}"
        made.append(Statement(what, of_weights["E2M1"] > 1 / 3, f"{of_weights['E2M1']:.2f}"))
    return made


def recipes_at_the_end(context: Context) -> list[Statement]:
    """What decides the gaps of recipes whose models were trained until float32 was at the entropy."""
    table, early = study(context, "recipes-converged"), study(context, "recipes")
    if table is None:
        return []

    def mended(*kinds: str) -> Statement:
        fifth, half = (
            [below(gaps(table, f"{kind} rceil", share=part, of=kind), 0, LEVEL) for kind in kinds]
            for part in (0.2, 0.5)
        )
        what = f"trained to the end, the gap of {', '.join(kinds)} is overflow: rceil leaves less than a fifth"
        told = (f"{kind} {mean(table, kind):.4f}, rceil {mean(table, f'{kind} rceil'):.4f}" for kind in kinds)
        return Statement(what, decided(all(each is True for each in fifth), False in half), "; ".join(told))

    normed = {
        kind: [a - b for a, b in zip(gaps(table, f"{kind}, layer norm too"), gaps(table, kind), strict=True)]
        for kind in ("E4M3", "E2M1")
    }
    p = holm({kind: sign_flip(values) for kind, values in normed.items()})
    alike = {
        kind: below(values, mean(table, kind) / 10, LEVEL)
        and below([-v for v in values], mean(table, kind) / 10, LEVEL)
        for kind, values in normed.items()
    }
    wide = mean(table, "E5M2")
    of_gradients, of_weights = (mean(table, f"E5M2 {part}, all else E4M3") for part in ("gradients", "weights"))
    made = [
        mended("E4M3"),
        mended("E5M2", "E2M3", "E3M2"),
        Statement(
            "trained to the end, layer norm in the format matters",
            decided(max(p.values()) < LEVEL, all(alike.values())),
            "; ".join(f"{kind} {words(values)} more, p {p[kind]:.2g} after Holm" for kind, values in normed.items()),
        ),
        Statement(
            "trained to the end, the format of the gradients decides and not that of the weights",
            abs(of_gradients - wide) < abs(of_weights - wide),
            f"E4M3 {mean(table, 'E4M3'):.3f}, E5M2 {wide:.3f}; E5M2 gradients alone {of_gradients:.3f}, "
            f"E5M2 weights alone {of_weights:.3f}",
        ),
    ]
    if early is not None:
        grown = {arm: mean(table, arm) / mean(early, arm) for arm in early["arms"] if arm != PLAIN
                 and mean(early, arm) > 0.02}  # fmt: skip
        made.append(
            Statement(
                "gaps of recipes shrink below half when models are trained to the end",
                decided(max(grown.values()) < 0.5, min(grown.values()) > 0.9),
                "times "
                + ", ".join(f"{value:.2f} ({arm})" for arm, value in sorted(grown.items(), key=lambda g: g[1])),
            )
        )
    return made


def what_centring_takes(context: Context) -> list[Statement]:
    """The drift in four bits: the gradient of the logits alone, as it is and centred."""
    table = study(context, "drift")
    if table is None:
        return []
    at_rest = {arm: float(table["arms"][arm]["at_rest"]) for arm in table["arms"] if arm != PLAIN}
    centred = {arm: arm.removesuffix(", centred") for arm in at_rest if arm.endswith(", centred")}
    left = {arm: mean(table, f"{arm}, centred") for arm in _DRIFTING}
    near = {arm: abs(left[arm] - at_rest[f"{arm}, centred"]) for arm in _DRIFTING}
    parts = {arm: left[arm] / mean(table, arm) for arm in _DRIFTING}
    taken = all(parts[arm] < 0.2 or near[arm] < 0.02 for arm in _DRIFTING)
    kept = any(parts[arm] > 0.5 and near[arm] > 0.03 for arm in _DRIFTING)
    apart = abs(mean(table, "E2M1") - mean(table, "E2M1, centred")) / mean(table, "E2M1")
    drifts = {arm: arm not in centred and mean(table, arm) > 2 * at_rest[arm] for arm in at_rest}
    row = {arm: rows(table, arm) for arm in at_rest}
    right = all(row[arm] > 0.5 if drifts[arm] else row[arm] < 0.2 for arm in at_rest)
    reversed_ = any(row[arm] < 0.2 if drifts[arm] else row[arm] > 0.5 for arm in at_rest)
    off = {arm: abs(mean(table, arm) - at_rest[arm]) for arm in centred}
    return [
        Statement(
            "in four bits centring the gradient of the logits takes the cost of the drift",
            decided(taken, kept),
            "; ".join(f"{arm} {mean(table, arm):.3f}, centred {left[arm]:.3f}" for arm in _DRIFTING),
        ),
        Statement(
            "E2M1 with floor, to nearest, does not drift",
            decided(apart < 0.2, apart > 0.5),
            f"{mean(table, 'E2M1'):.3f}, centred {mean(table, 'E2M1, centred'):.3f}",
        ),
        Statement(
            "in four bits the mean row of the last layer goes with the drift",
            decided(right, reversed_),
            ", ".join(f"{arm} {value:.2f}" for arm, value in row.items()),
        ),
        Statement(
            "centred, four bits cost what is derived of the target at rest",
            decided(max(off.values()) < 0.02, max(off.values()) > 0.05),
            ", ".join(f"{centred[arm]} {mean(table, arm):.3f}, derived {at_rest[arm]:.3f}" for arm in centred),
        ),
    ]


def on_text(context: Context) -> list[Statement]:
    """The same questions of a text, read by bytes."""
    table = study(context, "text")
    if table is None:
        return []
    last, rest = (mean(table, f"E4M3, {part}") / mean(table, "E4M3") for part in
                  ("last layer", "all but the last layer"))  # fmt: skip
    nearest, mended = ("E2M1 even", "E2M1 rceil"), "E2M1 rceil, SR gradients"
    more = {rule: [a - b for a, b in zip(gaps(table, rule), gaps(table, "E2M1"), strict=True)] for rule in nearest}
    p = holm({"E4M3": sign_flip(gaps(table, "E4M3")), **{rule: sign_flip(more[rule]) for rule in nearest}})
    fifth, half = (gaps(table, "E4M3 rceil", share=part, of="E4M3") for part in (0.2, 0.5))
    over = {arm: rows(table, arm) - rows(table, PLAIN) for arm in (*nearest, mended)}
    with_row = all(over[arm] > 0.5 for arm in nearest) and over[mended] < 0.2
    costs = [p[rule] < LEVEL and float(np.mean(more[rule])) for rule in nearest]
    left = gaps(table, mended, share=0.5, of="E2M1")
    return [
        Statement(
            "on text E4M3's gap is overflow: rceil leaves less than a fifth",
            decided(p["E4M3"] < LEVEL and below(fifth, 0, LEVEL) is True, below(half, 0, LEVEL) is False),
            f"{words(gaps(table, 'E4M3'))}, p {p['E4M3']:.2g}; with rceil {words(gaps(table, 'E4M3 rceil'))}",
        ),
        Statement(
            "on text it is the last layer: that alone has more than 0.8, all others less than 0.2",
            decided(last > 0.8 and rest < 0.2, last < 0.5),
            f"{last:.2f} and {rest:.2f}",
        ),
        Statement(
            "on text E2M1 to nearest costs more with even and with rceil than with floor",
            decided(all(cost > 0 for cost in costs), any(cost < 0 for cost in costs)),
            "; ".join(f"{rule} {words(more[rule])} more, p {p[rule]:.2g}" for rule in nearest),
        ),
        Statement(
            "on text rceil and stochastic gradients together cost less than half of what floor to nearest does",
            below(left, 0, LEVEL),
            f"{words(gaps(table, mended))} and {words(gaps(table, 'E2M1'))}",
        ),
        Statement(
            "on text the mean row of the last layer goes with that",
            decided(with_row, all(over[arm] < 0.2 for arm in nearest)),
            ", ".join(f"{arm} {value:+.2f}" for arm, value in over.items()) + " over float32's",
        ),
    ]


def lost_in_other_settings(context: Context) -> list[Statement]:
    """At a rate at which E4M3 is lost: other models and sources."""
    table = study(context, "lost-elsewhere")
    if table is None:
        return []
    made: list[Statement] = []
    for place in dict.fromkeys(name.rpartition(", ")[0] for name in table["arms"]):
        plain, floor, rceil = (losses(table, f"{place}, {kind}") for kind in (PLAIN, "E4M3", "E4M3 rceil"))
        learns = max(plain.values()) < ends_of(table, f"{place}, {PLAIN}")
        gap: dict[str, list[float]] = {
            name: [found[seed] - plain[seed] for seed in plain] for name, found in (("floor", floor), ("rceil", rceil))
        }
        holds: Any = min(gap["floor"]) > 0.5 and max(gap["rceil"]) < 0.1
        listed = "; ".join(f"{name} {min(g):+.2f} to {max(g):+.2f}" for name, g in gap.items())
        made.append(
            Statement(
                f"at a rate of 0.192, {place}: E4M3 with floor ends more than half a nat above float32 on every seed, "
                "with rceil less than 0.1",
                bool(holds) if learns else None,
                listed if learns else f"float32 does not learn there; {listed}",
            )
        )
    return made


def without_the_mean_row(context: Context) -> list[Statement]:
    """Judge what E4M3 costs at a high rate where the last layer's weight loses its mean row after each step."""
    table = study(context, "mean-row")
    if table is None:
        return []
    plain = {kind: f"{kind}, rate 0.192" for kind in ("E4M3, logits", "E4M3")}
    centred = {kind: f"{kind}, centred weight, rate 0.192" for kind in plain}
    fifth, half = (
        [below(gaps(table, centred[kind], share=part, of=plain[kind]), 0, LEVEL) for kind in plain]
        for part in (0.2, 0.5)
    )
    return [
        Statement(
            "at a rate of 0.192 removing the mean row after each step leaves less than a fifth of what E4M3 costs",
            decided(all(each is True for each in fifth), False in half),
            "; ".join(f"{kind} {mean(table, plain[kind]):.3f}, {words(gaps(table, centred[kind]))}" for kind in plain),
        )
    ]


#: Those of B11.
STATEMENTS = shares_of_operands, recipes_at_the_end, what_centring_takes, on_text, without_the_mean_row
