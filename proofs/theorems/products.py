"""Fast products by blocks: why float hardware computes them exactly.

In units of the smallest steps elements are integers, and a float adds integers exactly, in any order and with fused or
separate multiplication, as long as no partial sum can leave its significand. That is a bound on largest magnitudes,
checked here from the literal tables for the plan that the library makes of every pair of elements.
"""

from __future__ import annotations

import time
from functools import partial

from mxnum.engine import panels, tiles
from mxnum.formats import ELEMENTS
from proofs import tables
from proofs.theorem import Outcome, Theorem, Verdict

STATEMENT = (
    "In the plan for products of two elements every element value is a whole number of units, and no sum of products "
    "over a block can exceed 2**24 units in float32 or 2**53 in float64, so that hardware holds every partial sum "
    "exactly; where one operand is split in two, this holds for both halves."
)
#: Significand bits: integers up to 2**bits are exact.
EXACT = {"float32": 24, "float64": 53}
LONGEST = 1 << 12


def check(a: str, b: str) -> Outcome:
    started = time.perf_counter()

    def outcome(verdict: Verdict, detail: str) -> Outcome:
        return Outcome(verdict, "arithmetic", time.perf_counter() - started, detail)

    first, second = tables.ELEMENTS[a], tables.ELEMENTS[b]
    planned = 0
    for run in range(1, LONGEST + 1):
        plan = panels.plan(ELEMENTS[a], ELEMENTS[b], run)
        if plan is None:
            continue
        planned += 1
        largest = []
        for element, unit in ((first, plan.unit_a), (second, plan.unit_b)):
            # The most negative integer code decodes, one beyond the largest magnitude.
            most = element.magnitudes[-1] + (1 if element.twos_complement else 0)
            if element.unit < unit:
                return outcome("refuted", f"{element.name} has values between units of 2**{unit}")
            largest.append(most << (element.unit - unit))
        pieces = [largest[0]]
        if plan.split:
            pieces = [largest[0] >> tiles.SPLIT, (1 << tiles.SPLIT) - 1]
        if max(pieces) * largest[1] * run > 1 << EXACT[plan.word]:
            return outcome("refuted", f"blocks of {run}: sums can exceed 2**{EXACT[plan.word]} units")
    if not planned:
        return outcome("refuted", "no block length has a plan: nothing was checked")
    return outcome("proved", f"block lengths 1 to {LONGEST}, {planned} with a plan")


def theorems() -> list[Theorem]:
    return [
        Theorem(
            name=f"products/{a}/{b}",
            statement=STATEMENT,
            kernels=("tiles.multiply",),
            check=partial(check, a, b),
            hypotheses=(f"blocks of 1 to {LONGEST} elements",),
            functions=(panels.plan,),
        )
        for a in tables.ELEMENTS
        for b in tables.ELEMENTS
    ]
