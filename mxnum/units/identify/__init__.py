"""Identify a matrix unit: find the rules that reproduce its answers to cases of d = a·b + c.

    from mxnum.units.identify import identify
    print(identify(f, "e4m3", k=32))

`family` defines the rules, and `compiled` evaluates them. `cases` makes cases, and `search` finds
the rules that reproduce the answers. `identification` adds cases in rounds, until the remaining
rules agree on all new cases. `report` writes the result, and `text` writes and reads cases.
"""

from __future__ import annotations

from mxnum.units.identify.cases import first_cases
from mxnum.units.identify.family import Cases, Problem, Rule, evaluate
from mxnum.units.identify.identification import Identification, identify, judge

__all__ = ["Cases", "Identification", "Problem", "Rule", "evaluate", "first_cases", "identify", "judge"]
