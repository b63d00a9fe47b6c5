"""Tests of the findings and the answer of claim M2."""

from __future__ import annotations

import pytest

from mxnum.lab.claims import (
    Statement,
    Verdict,
    tensors,
)
from mxnum.lab.claims.rows import (
    m02,
)


def test_scale_rules(checked, held):
    answers = held("M2")
    assert checked("M2").verdict == Verdict.DIFFERS
    for tensor in tensors.tensors():
        assert answers[f"{tensor}: E2M1 is best with even"]
        assert answers[f"{tensor}: E2M1 at its best beats INT4 at its best"]
        assert not answers[f"{tensor}: INT4 is best with ceil"]
        assert answers[
            f"{tensor}, mxint4: floor overflows most, ceil never overflows and underflows most, even lies between"
        ]


@pytest.mark.parametrize(
    ("said", "told"), [(True, "On all synthetic tensors"), (False, "Refuted: floor"), (None, "On some tensors: floor")]
)
def test_the_answer_on_rules_follows_what_is_so(said, told):
    """Check that the answer does not say that all tensors agree if some do not."""
    holds = {True: [True, True], False: [False, False], None: [True, False]}[said]
    order = [Statement("weights, E2M1: floor overflows most, ceil never", each) for each in holds]
    rest = ("E2M1 is best with even", "E2M1 at its best beats", "INT4 is best with ceil", "E3M0 is usable")
    assert told in m02.answer([*order, *(Statement(what, True) for what in rest)])
