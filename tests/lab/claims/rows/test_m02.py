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
        assert answers[f"{tensor}: of all scale rules, 'even' gives E2M1 the smallest error"]
        assert answers[f"{tensor}: with the best rule for each format, E2M1 has a smaller error than INT4"]
        assert not answers[f"{tensor}: of all scale rules, 'ceil' gives INT4 the smallest error"]
        assert answers[
            f"{tensor}, mxint4: 'floor' overflows most, 'ceil' never overflows and underflows most, 'even' lies "
            "between them"
        ]


@pytest.mark.parametrize(
    ("said", "told"),
    [(True, "On all tensors"), (False, "Refuted: 'floor'"), (None, "On some tensors: 'floor'")],
)
def test_answer_says_if_tensors_disagree(said, told):
    """Check that the answer says whether a statement holds for all, some or none of the tensors."""
    holds = {True: [True, True], False: [False, False], None: [True, False]}[said]
    order = [Statement("weights, E2M1: 'floor' overflows most, 'ceil' never", each) for each in holds]
    rest = ("'even' gives E2M1", "E2M1 has a smaller error", "'ceil' gives INT4", "E3M0 is usable")
    assert told in m02.answer([*order, *(Statement(what, True) for what in rest)])
