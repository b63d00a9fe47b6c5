"""Mistakes that an implementation may make: other modes, common errors, and codes in another order.

Each hypothesis has a name, and a function that computes one field of the answers from a task and
its inputs. For a hypothesis about the codes of blocks, the column ``scale`` of the inputs holds the
implementation's scale codes. The column ``answered`` of the inputs holds the implementation's
answers in the field that the hypothesis is about. If a hypothesis does not determine an answer, its
function returns the implementation's answer. In reports, a hypothesis reads "what NAME gives", or
"NAME" alone if the name begins with "the right".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from mxnum.conformance.hypotheses.arrangements import orders
from mxnum.conformance.hypotheses.elements import ordered
from mxnum.conformance.hypotheses.float_scales import answer_of_stack, applicable_stacks
from mxnum.conformance.judging.right import right
from mxnum.conformance.task import Answer, Columns, Field, Task
from mxnum.memory.dtypes import Array
from mxnum.modes import Rounding, scale_rules

#: The name of the hypothesis that every answer in one field is zero.
ZEROS = "a kernel that returns only zeros"


@dataclass(frozen=True)
class Hypothesis:
    """A possible mistake: a function that computes the answers that this mistake would give."""

    name: str
    #: The field of the answers that the hypothesis explains.
    field: str
    answer: Answer
    #: The name of the software in `mxnum.stacks` whose arithmetic the hypothesis assumes, or None.
    stack: str | None = None


def hypotheses(task: Task) -> list[Hypothesis]:
    """Return the hypotheses for an operation, in the order of preference.

    If several hypotheses explain the same cases, the report names the preferred hypotheses first.
    """
    found = [
        Hypothesis(f"{stack.name}'s arithmetic", field.name, answer_of_stack(stack, field.name), stack.name)
        for stack in applicable_stacks(task)
        for field in task.outputs
    ]
    found += [Hypothesis(name, field, answer) for field, name, answer in task.operation.hypotheses(task)]
    for field in task.outputs:
        found.append(Hypothesis(ZEROS, field.name, lambda _, inputs: np.zeros_like(inputs["answered"])))
        if field.kind != "float":
            name = f"the right codes in the lowest {field.bits} bits, with other bits above them"
            found.append(Hypothesis(name, field.name, partial(_other_bits_above, field)))
    return found


def stuck_bits(task: Task) -> Iterator[Hypothesis]:
    """Yield hypotheses that one bit of all scales, or of all codes, is stuck at 0 or 1.

    These hypotheses are tried only on all cases together, not on single classes of cases.
    """

    def stuck(field: Field, bit: int, at: int) -> Answer:
        def answer(task: Task, inputs: Columns) -> Array:
            code = right(task, inputs, field.name)
            mask = code.dtype.type(1 << bit)
            return np.asarray(code | mask if at else code & ~mask)

        return answer

    for field in task.outputs:
        if field.kind != "float":
            for bit, at in product(range(field.bits), (0, 1)):
                what = "scales" if field.kind == "scale" else "codes"
                yield Hypothesis(f"the right {what} with bit {bit} stuck at {at}", field.name, stuck(field, bit, at))


def pairs(task: Task) -> Iterator[Hypothesis]:
    """Yield hypotheses that combine two mistakes.

    One of the two mistakes is another rounding mode, another scale rule, or another order of the
    codes.
    """
    singles = hypotheses(task)
    others = {f"rounding {mode}": replace(task, rounding=mode) for mode in Rounding}
    rules = scale_rules(task.format)
    others |= {f"scale rule {rule}": replace(task, scale_rule=rule) for rule in rules}
    of_stacks = [one for one in singles if one.stack and one.field == "codes"]
    for mode in singles:
        if other := others.get(mode.name):
            for one in [*of_stacks, *(one for one in hypotheses(other) if not one.stack)]:
                if one.field == mode.field and not any(name in one.name for name in ("the right", *others)):
                    yield Hypothesis(f"{one.name} under {mode.name}", one.field, _under(other, one.answer))
    for name, change in orders(task.block, task.element.bits):
        for one in singles:
            if one.field == "codes" and not one.name.startswith("the right"):
                yield Hypothesis(f"{name}, after {one.name}", "codes", ordered(change, one.answer))


def _under(other: Task, answer: Answer) -> Answer:
    return lambda task, inputs: answer(other, inputs)


def _other_bits_above(field: Field, task: Task, inputs: Columns) -> Array:
    got, want = inputs["answered"], right(task, inputs, field.name)
    return np.where((got & ((1 << field.bits) - 1)) == want, got, want)
