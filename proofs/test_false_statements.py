"""Kernels that do something else than their theorem says: it refutes them."""

from __future__ import annotations

import pytest

from mxnum.modes import Overflow
from proofs.theorems import encode

make_encode = encode.make_encode


@pytest.mark.parametrize(("target", "rounding"), [("e4m3", "rne"), ("e5m2", "rtz"), ("float16", "rne")])
@pytest.mark.parametrize("always", Overflow)
def test_an_encoder_that_knows_one_overflow_only(monkeypatch, target, rounding, always):
    """Both modes had one result then, of which only the first was asked for."""
    monkeypatch.setattr(encode, "make_encode", lambda source, to, mode, over: make_encode(source, to, mode, always))
    assert encode.check("float32", target, rounding, ("bitwuzla",)).verdict == "refuted"


def test_an_element_without_special_codes_has_one_encoder_for_both(monkeypatch):
    monkeypatch.setattr(
        encode, "make_encode", lambda source, to, mode, over: make_encode(source, to, mode, Overflow.IEEE)
    )
    assert encode.check("float32", "e2m1", "rne", ("bitwuzla",)).verdict == "proved"
