"""Tests that the symbolic elements cover every element format of at most eight bits.

The tests also check that a wrong constant refutes theorems about a symbolic element.
"""

from __future__ import annotations

from itertools import product

import pytest

from mxnum.engine.rounding import float_additions
from mxnum.formats import ELEMENTS, ElementFormat, two_complement
from mxnum.modes import Overflow, Rounding, ScaleRule
from proofs.machines.any_element import MOST_BITS, any_element, kinds, stands_for
from proofs.theorems import any_format


def formats():
    """Yield element formats of at most eight bits, with all field widths and several biases."""
    for exponent_bits, mantissa_bits, specials in product(range(1, 8), range(7), ("none", "nan", "ieee")):
        for bias in (-1023, -3, 0, (1 << (exponent_bits - 1)) - 1, 1023):
            try:
                fmt = ElementFormat("user", exponent_bits, mantissa_bits, bias, specials)
            except ValueError:
                continue
            if fmt.bits <= MOST_BITS:
                yield fmt
    yield from (two_complement(f"int{bits}", bits) for bits in range(3, MOST_BITS + 1))


def kind_of(fmt, specials_met):
    """Return the kind of a format: one of the names that `any_element` accepts."""
    if fmt.integer:
        return "integer"
    return fmt.specials if specials_met and fmt.specials != "none" else "float"


@pytest.mark.parametrize("specials_met", [False, True])
def test_every_format_is_one_of_a_kind(specials_met):
    symbolic, seen = {}, set()
    for fmt in [*ELEMENTS.values(), *formats()]:
        kind = kind_of(fmt, specials_met)
        if specials_met and fmt.specials == "none":
            continue  # without codes for NaN and infinity, every overflow mode saturates
        key = fmt.mantissa_bits, kind
        assert kind in kinds(fmt.mantissa_bits, specials_met), fmt
        assert stands_for(symbolic.setdefault(key, any_element(*key)), fmt), fmt
        seen.add(key)
    assert len(seen) >= 12


def test_what_it_does_not_stand_for():
    nine_bits = ElementFormat("e4m4", 4, 4, 7)
    assert not stands_for(any_element(4, "float"), nine_bits)
    assert not stands_for(any_element(3, "ieee"), ELEMENTS["e4m3"])
    assert not stands_for(any_element(3, "nan"), ELEMENTS["e2m3"])


def test_a_wrong_constant_is_noticed(monkeypatch):
    real = float_additions.constants
    assert any_format.check_scale(2, "float32").verdict == "proved"
    monkeypatch.setattr(float_additions, "constants", lambda *a, **k: real(*a, **k)._replace(scale_bump=1 << 22))
    assert any_format.check_scale(2, "float32").verdict == "refuted"
    monkeypatch.setattr(float_additions, "constants", lambda *a, **k: real(*a, **k)._replace(up=23 << 23))
    assert any_format.check_code(2, Rounding.RTZ, Overflow.SATURATE).verdict == "refuted"


def test_constants_of_a_symbolic_element_are_those_of_the_format():
    import z3

    for fmt in (ELEMENTS["e4m3"], ELEMENTS["e5m2"], ELEMENTS["int8"], ElementFormat("user", 3, 2, -5, "nan")):
        element = any_element(fmt.mantissa_bits, kind_of(fmt, specials_met=True))
        solver = z3.Solver()
        solver.add(*(a == b for a, b in zip(element.words, (fmt.bits, fmt.bias, fmt.max_code), strict=True)))
        assert solver.check() == z3.sat
        model = solver.model()
        modes = Rounding.RTP, Overflow.IEEE, ScaleRule.RCEIL
        for got, want in zip(
            float_additions.constants(element, *modes), float_additions.constants(fmt, *modes), strict=True
        ):
            value = got if isinstance(got, int) else model.eval(got.value).as_signed_long()
            assert value == want
