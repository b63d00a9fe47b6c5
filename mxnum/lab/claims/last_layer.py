"""Judge statements about the last layer of small language models.

Claim B11 uses the rules in this module. `docs/lab/results/language/README.md` stated the rules
before the models were trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mxnum.lab.claims.claim import Context
from mxnum.lab.claims.evidence import LEVEL, Statement, below, decided
from mxnum.lab.claims.language_models import PLAIN, Table, apart, gaps, mean_gap, mean_row, study, words
from mxnum.lab.studies.statistics import holm, sign_flip

_OF_THE_FORWARD_PASS = "layer norm", "embedding", "attention", "weights", "activations"
#: Arms of the study `drift` that should drift. These arms round only the gradient of the logits,
#: and the study trains each of them with and without centring this gradient.
DRIFTING = "E2M1 even", "E2M1 rceil", "E2M1 SR"
#: The results files of the studies in `RULES`, without the files in `RECIPE_FILES`.
FILES = tuple(f"language/{name}.json" for name in ("operands", "operands-converged", "drift", "text", "mean-row"))


def judged(context: Context) -> Iterator[Statement]:
    """Apply each of `RULES` whose study was run, and yield the resulting statements."""
    for name, rule in RULES.items():
        if (table := study(context, name)) is not None:
            yield from rule(table)
            if name == "recipes-converged" and (early := study(context, "recipes")) is not None:
                yield grown(table, early)


def shares(table: Table, when: str = "") -> list[Statement]:
    """Judge how much of a format's gap each part of the model causes."""

    def share(name: str, part: str) -> float:
        return mean_gap(table, f"{name}, {part}") / mean_gap(table, f"{name}, all")

    last, rest, of_weights = (
        {name: share(name, part) for name in ("E4M3", "E2M1")}
        for part in ("last layer", "all but the last layer", "gradients for weights")
    )
    others = {part: share("E4M3", part) for part in _OF_THE_FORWARD_PASS}
    made = [
        Statement(
            "rounding only the last layer causes more than 0.8 of E4M3's gap, and rounding only the other layers "
            f"less than 0.2{when}",
            last["E4M3"] > 0.8 and rest["E4M3"] < 0.2,
            f"{last['E4M3']:.2f} and {rest['E4M3']:.2f}",
        ),
        Statement(
            f"rounding only the last layer causes more than half of E2M1's gap{when}",
            last["E2M1"] > 0.5,
            f"shares: the last layer {last['E2M1']:.2f}, all other layers {rest['E2M1']:.2f}, output gradients "
            f"rounded only in the products for weight gradients {of_weights['E2M1']:.2f}",
        ),
        Statement(
            "layer norm, embedding, attention, weights and activations, each rounded alone, cause less than a "
            f"tenth of E4M3's gap{when}",
            max(others.values()) < 0.1,
            ", ".join(f"{part} {value:.2f}" for part, value in others.items()),
        ),
        Statement(
            "output gradients rounded only in the products for weight gradients cause more than half of "
            f"E4M3's gap{when}",
            of_weights["E4M3"] > 0.5,
            f"{of_weights['E4M3']:.2f}",
        ),
    ]
    if when:  # one more rule for models trained to the end
        what = (
            "output gradients rounded only in the products for weight gradients cause more than a "
            f"third of E2M1's gap{when}"
        )
        made.append(Statement(what, of_weights["E2M1"] > 1 / 3, f"{of_weights['E2M1']:.2f}"))
    return made


def recipes_at_the_end(table: Table) -> list[Statement]:
    """Judge what causes the gaps of recipes in models trained to the end."""

    def mended(*kinds: str) -> Statement:
        fifth, half = (
            [below(gaps(table, f"{kind} rceil", share=part, of=kind)) for kind in kinds] for part in (0.2, 0.5)
        )
        what = (
            f"in models trained to the end, overflow causes the gap of {', '.join(kinds)}, because rceil leaves "
            "less than a fifth of the gap"
        )
        listed = (f"{kind} {mean_gap(table, kind):.4f}, rceil {mean_gap(table, f'{kind} rceil'):.4f}" for kind in kinds)
        return Statement(what, decided(all(each is True for each in fifth), False in half), "; ".join(listed))

    normed = {kind: apart(table, f"{kind}, layer norm too", kind) for kind in ("E4M3", "E2M1")}
    p = holm({kind: sign_flip(values) for kind, values in normed.items()})
    alike = [
        below(values, mean_gap(table, kind) / 10) and below([-v for v in values], mean_gap(table, kind) / 10)
        for kind, values in normed.items()
    ]
    wide = mean_gap(table, "E5M2")
    of_gradients, of_weights = (mean_gap(table, f"E5M2 {part}, all else E4M3") for part in ("gradients", "weights"))
    return [
        mended("E4M3"),
        mended("E5M2", "E2M3", "E3M2"),
        Statement(
            "in models trained to the end, the gap changes if the recipe also rounds layer norm",
            decided(max(p.values()) < LEVEL, all(alike)),
            "; ".join(f"{kind} {words(values)} more, p {p[kind]:.2g} after Holm" for kind, values in normed.items()),
        ),
        Statement(
            "in models trained to the end, the format of the gradients decides the gap, not the format of the weights",
            abs(of_gradients - wide) < abs(of_weights - wide),
            f"E4M3 {mean_gap(table, 'E4M3'):.3f}, E5M2 {wide:.3f}; E5M2 gradients alone {of_gradients:.3f}, "
            f"E5M2 weights alone {of_weights:.3f}",
        ),
    ]


def grown(table: Table, early: Table) -> Statement:
    """Judge whether longer training makes the gaps smaller.

    The function leaves out arms with a gap of at most 0.02 nats in the shorter training.
    """
    times = {arm: mean_gap(table, arm) / mean_gap(early, arm) for arm in early["arms"]
             if arm != PLAIN and mean_gap(early, arm) > 0.02}  # fmt: skip
    return Statement(
        "training models to the end makes the gaps of recipes less than half as large",
        decided(max(times.values()) < 0.5, min(times.values()) > 0.9),
        "times " + ", ".join(f"{value:.2f} ({arm})" for arm, value in sorted(times.items(), key=lambda g: g[1])),
    )


def what_centring_takes(table: Table) -> list[Statement]:
    """Judge the drift of arms that round only the logits' gradient, and the effect of centring.

    Centring subtracts the mean over the vocabulary from the rounded gradient.
    """
    at_rest = {arm: float(table["arms"][arm]["at_rest"]) for arm in table["arms"] if arm != PLAIN}
    centred = {arm: arm.removesuffix(", centred") for arm in at_rest if arm.endswith(", centred")}
    left = {arm: mean_gap(table, f"{arm}, centred") for arm in DRIFTING}
    near = {arm: abs(left[arm] - at_rest[f"{arm}, centred"]) for arm in DRIFTING}
    parts = {arm: left[arm] / mean_gap(table, arm) for arm in DRIFTING}
    taken = all(parts[arm] < 0.2 or near[arm] < 0.02 for arm in DRIFTING)
    kept = any(parts[arm] > 0.5 and near[arm] > 0.03 for arm in DRIFTING)
    floor, floor_centred = mean_gap(table, "E2M1"), mean_gap(table, "E2M1, centred")
    taken_of_floor = abs(floor - floor_centred) / floor
    drifts = {arm: arm not in centred and mean_gap(table, arm) > 2 * at_rest[arm] for arm in at_rest}
    row = {arm: mean_row(table, arm) for arm in at_rest}
    right = all(row[arm] > 0.5 if drifts[arm] else row[arm] < 0.2 for arm in at_rest)
    reversed_ = any(row[arm] < 0.2 if drifts[arm] else row[arm] > 0.5 for arm in at_rest)
    off = {arm: abs(mean_gap(table, arm) - at_rest[arm]) for arm in centred}
    return [
        Statement(
            "in 4 bits, centring the gradient of the logits removes the cost of the drift",
            decided(taken, kept),
            "; ".join(f"{arm} {mean_gap(table, arm):.3f}, centred {left[arm]:.3f}" for arm in DRIFTING),
        ),
        Statement(
            "E2M1 with the rule floor and rounding to nearest does not drift",
            decided(taken_of_floor < 0.2, taken_of_floor > 0.5),
            f"{floor:.3f}, centred {floor_centred:.3f}",
        ),
        Statement(
            "in 4 bits, the mean row of the last layer is large in arms that drift and small in arms that do not",
            decided(right, reversed_),
            ", ".join(f"{arm} {value:.2f}" for arm, value in row.items()),
        ),
        Statement(
            "in 4 bits with a centred gradient, the gap equals the gap derived for a model at rest",
            decided(max(off.values()) < 0.02, max(off.values()) > 0.05),
            ", ".join(f"{centred[arm]} {mean_gap(table, arm):.3f}, derived {at_rest[arm]:.3f}" for arm in centred),
        ),
    ]


def on_text(table: Table) -> list[Statement]:
    """Judge what causes the gaps of recipes in models that are trained on the bytes of a text."""
    last, rest = (mean_gap(table, f"E4M3, {part}") / mean_gap(table, "E4M3") for part in
                  ("last layer", "all but the last layer"))  # fmt: skip
    nearest, mended = ("E2M1 even", "E2M1 rceil"), "E2M1 rceil, SR gradients"
    more = {rule: apart(table, rule, "E2M1") for rule in nearest}
    p = holm({"E4M3": sign_flip(gaps(table, "E4M3")), **{rule: sign_flip(more[rule]) for rule in nearest}})
    fifth, half = (gaps(table, "E4M3 rceil", share=part, of="E4M3") for part in (0.2, 0.5))
    over = {arm: mean_row(table, arm) - mean_row(table, PLAIN) for arm in (*nearest, mended)}
    with_row = all(over[arm] > 0.5 for arm in nearest) and over[mended] < 0.2
    costs = [p[rule] < LEVEL and sum(more[rule]) for rule in nearest]
    left = gaps(table, mended, share=0.5, of="E2M1")
    return [
        Statement(
            "on text, overflow causes E4M3's gap, because rceil leaves less than a fifth of the gap",
            decided(p["E4M3"] < LEVEL and below(fifth) is True, below(half) is False),
            f"{words(gaps(table, 'E4M3'))}, p {p['E4M3']:.2g}; with rceil {words(gaps(table, 'E4M3 rceil'))}",
        ),
        Statement(
            "on text, rounding only the last layer causes more than 0.8 of E4M3's gap, and rounding only the other "
            "layers less than 0.2",
            decided(last > 0.8 and rest < 0.2, last < 0.5),
            f"{last:.2f} and {rest:.2f}",
        ),
        Statement(
            "on text, E2M1 rounded to nearest has a larger gap with 'even' and 'rceil' than with 'floor'",
            decided(all(cost > 0 for cost in costs), any(cost < 0 for cost in costs)),
            "; ".join(f"{rule} {words(more[rule])} more, p {p[rule]:.2g}" for rule in nearest),
        ),
        Statement(
            "on text, E2M1 with rceil and stochastic rounding of gradients has less than half the gap of E2M1 with "
            "floor and rounding to nearest",
            below(left),
            f"{words(gaps(table, mended))} and {words(gaps(table, 'E2M1'))}",
        ),
        Statement(
            "on text, the mean row of the last layer is large if E2M1 with 'even' or 'rceil' is rounded to nearest, "
            "and small if gradients are rounded stochastically",
            decided(with_row, all(over[arm] < 0.2 for arm in nearest)),
            ", ".join(f"{arm} {value:+.2f}" for arm, value in over.items()) + " over float32's",
        ),
    ]


def without_the_mean_row(table: Table) -> list[Statement]:
    """Judge whether E4M3's gap at a high learning rate closes without the last layer's mean row.

    Training subtracts the mean row from the layer's weight after each step.
    """
    plain = {kind: f"{kind}, rate 0.192" for kind in ("E4M3, logits", "E4M3")}
    centred = {kind: f"{kind}, centred weight, rate 0.192" for kind in plain}
    fifth, half = (
        [below(gaps(table, centred[kind], share=part, of=plain[kind])) for kind in plain] for part in (0.2, 0.5)
    )
    return [
        Statement(
            "at a learning rate of 0.192, removing the last layer's mean row after each step leaves less than a "
            "fifth of E4M3's gap",
            decided(all(each is True for each in fifth), False in half),
            "; ".join(
                f"{kind} {mean_gap(table, plain[kind]):.3f}, {words(gaps(table, centred[kind]))}" for kind in plain
            ),
        )
    ]


#: For each study, the function that judges the statements about it.
RULES: dict[str, Callable[[Table], list[Statement]]] = {
    "operands": shares,
    "operands-converged": lambda table: shares(table, " in models trained to the end"),
    "recipes-converged": recipes_at_the_end,
    "drift": what_centring_takes,
    "text": on_text,
    "mean-row": without_the_mean_row,
}
