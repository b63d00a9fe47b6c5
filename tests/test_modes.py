"""Modes are strings with definitions."""

from __future__ import annotations

import pytest

import mxnum as mx
from mxnum import modes


def test_members():
    assert [*modes.Rounding] == ["rne", "rna", "rtz", "rtp", "rtn", "rto", "sr"]
    assert [*modes.ScaleRule] == ["floor", "ceil", "even", "rceil"]
    assert [*modes.Overflow] == ["saturate", "ieee"]
    assert [*modes.Nonfinite] == ["block", "element", "raise"]
    assert [*modes.Accumulate] == ["exact", "block", "sequential", "blas"]
    assert mx.Rounding("rne") is mx.Rounding.RNE
    assert f"{mx.Rounding.SR}" == "sr"


@pytest.mark.parametrize(
    "enum",
    [modes.Rounding, modes.ScaleRule, modes.Overflow, modes.Nonfinite, modes.OffsetRange, modes.Accumulate],
)
def test_every_member_says_what_it_means(enum):
    definitions = [member.__doc__ for member in enum]
    assert all(definitions)
    assert len(set(definitions)) == len(definitions)
    assert enum.__doc__
