"""I5: zeta, the relative error of the gradient, can be measured and grows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxnum.lab.claims import paper_size
from mxnum.lab.claims.claim import BY_TRAINING, Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement, Whose, counted, decided
from mxnum.lab.claims.mlp_runs import LEVEL, command, settings
from mxnum.lab.studies.statistics import mean_interval, sign_flip
from mxnum.output import palette

CLAIM = Claim(
    "I5",
    "The size of zeta can be measured, and it grows",
    "Quantization changes the gradient by the relative error zeta. The relative change of the gradient on the same "
    "parameters is a lower bound of the norm of zeta. The norm grows during training, and the run diverges when "
    "the norm is of order 2.",
    BY_TRAINING,
    "Diverging runs at the paper's size (d = 512, 4 layers) that log the lower bound of zeta at each step "
    "would decide the claim.",
    needs=(("confirm.json", "quick.json"),),
    command=command("confirm"),
)
#: The arm that the paper describes. Statements about other arms are by this project.
OF_THE_PAPER = "E4M3"
#: `EVALUATIONS` evaluations are averaged at the beginning and at the end of a run. Regular
#: evaluations are `EVERY` steps apart. Evaluations are more frequent while a loss is high.
EVALUATIONS, EVERY = 10, 50
Growth = tuple[bool | None, float, float]


@CLAIM.check
def _check(context: Context) -> Evidence:
    """Judge whether zeta grows during training, and is of order 2 before the loss rises.

    The test of growth is the exact sign-flip test, at `LEVEL`, of zeta's logarithmic growth in each
    run. The size of zeta is of order 2 if the 95 % limits of zeta's geometric mean lie between 1
    and 4. The size of zeta is not of order 2 if both limits of the mean are below 1 or both are
    above 4.
    """
    table = context.first("confirm.json", "quick.json")
    statements: list[Statement] = []
    grown: dict[str, Growth] = {}
    for arm in ("E2M1", "LN E2M1", "E4M3"):
        growth, last = _growth(table["arms"].get(arm, {"runs": []})["runs"])
        if not growth:
            continue
        p, mean = sign_flip(growth), math.exp(np.mean(growth))
        grown[arm] = mean > 1 if p < LEVEL else None, mean, p
        whose = Whose.PAPER if arm == OF_THE_PAPER else Whose.OURS
        numbers = (
            f"by a factor of {mean:.2f} on average; zeta grows in {sum(g > 0 for g in growth)} of {len(growth)} "
            f"runs, exact p {p:.2g}"
        )
        statements.append(Statement(f"{arm}: zeta grows during training", grown[arm][0], numbers, whose))
        if (limits := mean_interval(last)) is not None:
            centre, low, high = (math.exp(v) for v in limits)
            statements.append(
                Statement(
                    f"{arm}: before the loss rises, zeta is of order 2 (between 1 and 4)",
                    decided(low >= 1 and high <= 4, high < 1 or low > 4),
                    f"geometric mean {centre:.2f} (95 %: {low:.2f} to {high:.2f}) over {len(last)} runs at their last "
                    f""
                    "evaluation before the rise; evaluations are 250 steps apart",
                    whose,
                )
            )
    statements += at_the_size_of_the_paper(context)
    note = (
        "Each value given for zeta is its lower bound |g~ - g| / |g|. Here g is the gradient without quantization, "
        "and g~ is the gradient with quantization, on the same parameters and batch. The released code logs the "
        "square of this bound."
    )
    answer, number = _answer(grown, statements) if grown else ("", "")
    return Evidence((), statements, note, settings(table), answer, number)


def _growth(runs: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Return the log growth of zeta in each run, and the last log zeta before each rise."""
    growth, last = [], []
    for run in runs:
        stop = run["steps"] if run["diverged"] is None else run["diverged"]
        pairs = zip(run["measured_at"], run["measured"]["zeta"], strict=True)
        zeta = [z for at, z in pairs if z is not None and 0 < at <= stop]
        if len(zeta) >= 4:
            growth.append(math.log(np.mean(zeta[-2:]) / np.mean(zeta[:2])))
            last += [] if run["diverged"] is None else [math.log(zeta[-1])]
    return growth, last


def _answer(grown: dict[str, Growth], statements: list[Statement]) -> tuple[str, str]:
    """Return two texts: in which formats zeta grows, and the growth in the paper's format."""
    words, topics = {True: "grows in", False: "shrinks in", None: "shows no clear change in"}, []
    for sure, text in words.items():
        arms = [f"{arm} (factor {mean:.2f})" for arm, (holds, mean, _) in grown.items() if holds is sure]
        topics += [f"{text} {' and '.join(arms)}"] if arms else []
    parts = {"growth at the paper's size": paper_size.WHERE, "whether zeta is of order 2 before a rise": "order 2"}
    undecided = [part for part, what in parts.items() if any(what in s.what and s.holds is None for s in statements)]
    arm = OF_THE_PAPER if OF_THE_PAPER in grown else next(iter(grown))
    answer = (
        f"In the small MLP, zeta, the relative error of the gradient, {', '.join(topics)}."
        + f" Undecided: {' and '.join(undecided)}." * bool(undecided)
    )
    return answer, f"{arm}: factor {grown[arm][1]:.2f}, p {grown[arm][2]:.2g}"


def at_the_size_of_the_paper(context: Context) -> list[Statement]:
    """Describe the first, last and largest zeta before the loss rises, at the paper's size."""
    found = []
    for name, arm in paper_size.table(context)["arms"].items():
        zeta = [_calm_zetas(run) for run in arm["runs"]]
        if name == paper_size.CONTROL or not zeta:
            continue
        early, late = (np.mean([z[part] for z in zeta]) for part in (slice(EVALUATIONS), slice(-EVALUATIONS, None)))
        numbers = (
            f"zeta every {EVERY} steps before any excursion: the mean of the first ten values is {early:.2f}, of the "
            f"last ten {late:.2f}, and the largest value is {max(map(max, zeta)):.2f}; "
            f"{counted(len(zeta), 'run')}"
        )
        what = f"{name.removeprefix(paper_size.PREFIX)}: zeta grows during training, {paper_size.WHERE}"
        found.append(Statement(what, None, numbers))
    return found or [Statement(f"zeta grows during training {paper_size.WHERE}", None, "not run")]


def _calm_zetas(run: dict[str, Any]) -> list[float]:
    """Return zeta at the regular evaluations after step 0 and before the first excursion."""
    end = run["excursions"][0]["start"] if run["excursions"] else math.inf
    pairs = zip(run["measured_at"], run["measured"]["zeta"], strict=True)
    return [zeta for at, zeta in pairs if zeta is not None and 0 < at < end and at % EVERY == 0]


@CLAIM.figure()
def _draw(ax: Any, context: Context) -> str | None:
    name = next(filter(context.has, ("confirm.json", "quick.json")), None)
    if name is None:
        return None
    for index, (arm, found) in enumerate(context.json(name)["arms"].items()):
        if arm not in ("E4M3", "E2M1", "E2M1, LN FP32", "LN E2M1"):
            continue
        for number, run in enumerate(found["runs"]):
            pairs = [(t, v) for t, v in zip(run["measured_at"], run["measured"]["zeta"], strict=True) if v is not None]
            if pairs:
                label = None if number else arm
                ax.plot(*zip(*pairs, strict=True), color=palette.colour(arm, index), lw=0.8, label=label)
    ax.set(xlabel="step", ylabel="zeta", yscale="log")
    ax.legend(fontsize=8)
    return (
        "The lower bound |g~ - g| / |g| of zeta: g is the gradient without quantization, and g~ the gradient with "
        "quantization. Each run has one line, up to the step at which the run diverged or ended."
    )
