"""Which unit is this? Probing cases for d = a·b + c, and the rules that reproduce the answers.

    from mxnum.units.identify import identify
    print(identify(f, "e4m3", k=32))

`family` has the rules, `compiled` evaluates them, `cases` makes cases, `search` finds the rules
that fit, `identification` asks in rounds, `report` and `text` write and read.
"""

from __future__ import annotations

from mxnum.units.identify.cases import first_cases
from mxnum.units.identify.family import Cases, Problem, Rule, evaluate
from mxnum.units.identify.identification import Identification, identify, judge

__all__ = ["Cases", "Identification", "Problem", "Rule", "evaluate", "first_cases", "identify", "judge"]
