"""Tests that proofs fail if a kernel is wrong or missing, or if no input is checked."""

from __future__ import annotations

import numpy as np
import pytest
import z3

from mxnum.modes import Overflow
from proofs.machines import translation
from proofs.theorems import encode
from proofs.theorems.magic import swept

make_encode = encode.make_encode


@pytest.mark.parametrize(("target", "rounding"), [("e4m3", "rne"), ("e5m2", "rtz"), ("float16", "rne")])
@pytest.mark.parametrize("always", Overflow)
def test_an_encoder_that_knows_one_overflow_only(monkeypatch, target, rounding, always):
    """Check that the theorem fails if both overflow modes get the encoder of one mode."""
    monkeypatch.setattr(encode, "make_encode", lambda source, to, mode, over: make_encode(source, to, mode, always))
    assert encode.check("float32", target, rounding, ("bitwuzla",)).verdict == "refuted"


def test_an_element_without_special_codes_has_one_encoder_for_both(monkeypatch):
    monkeypatch.setattr(
        encode, "make_encode", lambda source, to, mode, over: make_encode(source, to, mode, Overflow.IEEE)
    )
    assert encode.check("float32", "e2m1", "rne", ("bitwuzla",)).verdict == "proved"


def test_a_family_without_kernels_is_not_translated():
    machine = translation.Execution(z3.BitVec("result", 32))
    assert translation.check(translation.Family("none", ()), lambda *_: machine).verdict == "error"


def test_a_sweep_over_nothing_or_over_something_else_proves_nothing():
    none, one = np.zeros((0, 3), np.int64), np.zeros((1, 3), np.int64)
    assert swept(none, none, 32, 0.0).verdict == "error"
    assert swept(one, none, 32, 0.0).verdict == "error"
    assert swept(one, one, 32, 0.0).verdict == "proved"
    assert swept(one, one + 1, 32, 0.0).verdict == "refuted"
