"""Tests of rounding and packing into codes: errors, and zero in every mode."""

from __future__ import annotations

import pytest

from mxnum.definition.pack import make_pack, make_round
from mxnum.definition.unpack import FINITE, ZERO_EXPONENT
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("name", [*ELEMENTS, *FLOATS])
def test_zero_stays_zero_and_keeps_its_sign(name, rounding):
    fmt = {**ELEMENTS, **FLOATS}[name]
    word = 64 if name == "float64" else 32
    pack = make_pack(fmt, rounding, Overflow.SATURATE, fmt.mantissa_bits + 1, word)
    mask = (1 << fmt.bits) - 1
    assert pack(0, ZERO_EXPONENT, 0, FINITE, (1 << 30) - 1) == 0
    minus_zero = 0 if fmt.integer else 1 << (fmt.bits - 1)
    assert pack(1, ZERO_EXPONENT, 0, FINITE, (1 << 30) - 1) & mask == minus_zero


@pytest.mark.parametrize(("width", "word"), [(3, 32), (29, 32), (61, 64)])
def test_a_width_that_cannot_be_rounded_in_the_word_is_refused(width, word):
    with pytest.raises(ValueError, match="does not fit"):
        make_round(ELEMENTS["e4m3"], Rounding.RNE, width, word)


def test_a_carry_out_of_the_significand_reaches_the_next_binade():
    round_magnitude = make_round(ELEMENTS["e4m3"], Rounding.RNE, 10, 32)
    assert round_magnitude(0, 0, (1 << 11) - 1, 0) == (1 + 7) << 3  # 2 - 2**-10 rounds up to 2
    assert round_magnitude(0, 8, (1 << 11) - 1, 0) == 0x7F  # 511.75 is beyond the largest value
