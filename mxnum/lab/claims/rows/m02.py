"""M2: which scale rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Evidence, Statement, unanimous
from mxnum.lab.claims.tensors import RULES, best_rule, configuration, error, found, tensors
from mxnum.output import palette

CLAIM = Claim(
    "M2",
    "Which scale rule",
    "With the scale rule 'floor', numbers are clamped; with 'ceil', numbers never overflow but underflow more; "
    "'even' is a compromise. The best rule is 'even' for E2M1 and 'ceil' for INT4, and E3M0 is usable only with "
    "'ceil'. E2M1 has a smaller error than INT4.",
    "R-MSE, overflow and underflow are measured on synthetic weights, activations and gradients, with all rules.",
)
E2M1, E3M0, INT4 = FORMATS = ("mxfp4_e2m1", "mxfp4_e3m0", "mxint4")


@CLAIM.check
def _check(context: Context) -> Evidence:
    statements = []
    for tensor in tensors():
        context.tell(tensor)
        statements += [_overflow_and_underflow(tensor, fmt) for fmt in FORMATS]
        errors = {fmt: {rule: error(tensor, fmt, rule) for rule in RULES} for fmt in FORMATS}
        least = {fmt: min(of.values()) for fmt, of in errors.items()}
        listed = {f: "R-MSE " + ", ".join(f"{rule} {e:.4f}" for rule, e in of.items()) for f, of in errors.items()}
        usable = errors[E3M0]["ceil"] < 0.75 * min(errors[E3M0]["floor"], errors[E3M0]["even"])
        statements += [
            Statement(
                f"{tensor}: of all scale rules, 'even' gives E2M1 the smallest error",
                best_rule(tensor, E2M1) == "even",
                listed[E2M1],
            ),
            Statement(
                f"{tensor}: E3M0 is usable with 'ceil', not with 'floor' or 'even' (with 'ceil' its error is at "
                "least a quarter smaller)",
                usable,
                listed[E3M0],
            ),
            Statement(
                f"{tensor}: of all scale rules, 'ceil' gives INT4 the smallest error",
                best_rule(tensor, INT4) == "ceil",
                listed[INT4],
            ),
            Statement(
                f"{tensor}: with the best rule for each format, E2M1 has a smaller error than INT4",
                least[E2M1] < least[INT4],
            ),
        ]
    note = (
        "The criterion is R-MSE on these tensors; the paper also uses the training loss. Like 'ceil', 'rceil' never "
        "overflows; the paper does not study 'rceil'."
    )
    rules = dict.fromkeys((best_rule("weights", INT4), "ceil"))
    number = "INT4 weights: " + ", ".join(f"{rule} {error('weights', INT4, rule):.3f}" for rule in rules)
    return Evidence((), statements, note, configuration(formats=FORMATS), answer(statements), number)


def _overflow_and_underflow(tensor: str, fmt: str) -> Statement:
    each = [found(tensor, fmt, rule) for rule in ("floor", "even", "ceil")]
    over, under = [s.beyond_max_rate for s in each], [s.underflow_rate for s in each]
    return Statement(
        f"{tensor}, {fmt}: 'floor' overflows most, 'ceil' never overflows and underflows most, 'even' lies between "
        "them",
        over[0] > over[1] > over[2] == 0 and under[2] > under[1] > under[0],
        "overflow {:.2%}, {:.2%}, {:.2%}; underflow {:.1%}, {:.1%}, {:.1%} under floor, even, ceil".format(
            *over, *under
        ),
    )


def answer(statements: list[Statement]) -> str:
    """Return a text that says on how many tensors (all, some or none) each statement holds."""
    best = " or ".join(dict.fromkeys(best_rule(tensor, INT4) for tensor in tensors()))
    even = max(error(tensor, E3M0, "even") / error(tensor, E3M0, "ceil") for tensor in tensors())
    topics = {
        "'floor' overflows most and 'ceil' never overflows": "'floor' overflows most",
        "'even' is best for E2M1": "'even' gives E2M1",
        "E2M1 has a smaller error than INT4": "E2M1 has a smaller error",
        f"'ceil' is best for INT4 (here: {best})": "'ceil' gives INT4",
        f"E3M0 needs 'ceil' (its error with 'even' is at most {even:.2f} times that with 'ceil')": "E3M0 is usable",
    }
    so = {topic: unanimous(s for s in statements if what in s.what) for topic, what in topics.items()}
    parts = {is_so: [topic for topic in so if so[topic] is is_so] for is_so in (True, False, None)}
    words = {True: "On all tensors", False: "Refuted:", None: "On some tensors:"}
    return " ".join(f"{words[is_so]} {'; '.join(topics)}." for is_so, topics in parts.items() if topics)


@CLAIM.figure(3.6)
def _draw(ax: Any, context: Context) -> str:
    rows = [(tensor, fmt) for tensor in tensors() for fmt in FORMATS]
    for i, rule in enumerate(("floor", "even", "ceil", "rceil")):
        at, shown = np.arange(len(rows)) + 0.12 * (i - 1.5), [error(tensor, fmt, rule) for tensor, fmt in rows]
        ax.plot(shown, at, "os^D"[i], ms=4.5, label=rule, color=palette.colour(rule))
    ax.set_yticks(range(len(rows)), [f"{tensor}, {fmt.removeprefix('mx')}" for tensor, fmt in rows], fontsize=8)
    ax.invert_yaxis()
    ax.set(xlabel="R-MSE / root mean square of the tensor")
    ax.legend(fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.4, 1), handletextpad=0, columnspacing=0.8)
    return "The error of the 4-bit formats under each scale rule, on synthetic weights, activations and gradients."
