"""The passes: what they hand to the loops."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.engine import host
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Nonfinite, Overflow, Rounding


def test_keys_are_words():
    key = host.RandomBits(30, seed=0x0123456789ABCDEF, stream=(1 << 64) - 1).key
    assert key == (0x89ABCDEF, 0x01234567, 0xFFFFFFFF, 0xFFFFFFFF)


def test_the_first_offender_is_named_in_c_order():
    x = np.zeros((4, 3), np.float32)
    x[2, 1], x[3, 0] = np.inf, np.nan
    options = {"rounding": Rounding.RNE, "overflow": Overflow.SATURATE, "random": None}
    with pytest.raises(ValueError, match=r"nonfinite at index \(2, 1\)"):
        host.encode(x, FLOATS["float32"], ELEMENTS["e2m1"], nonfinite=Nonfinite.RAISE, **options)
    with pytest.raises(ValueError, match=r"NaN at index \(3, 0\)"):
        host.encode(x, FLOATS["float32"], ELEMENTS["e2m1"], nonfinite=Nonfinite.ELEMENT, **options)
    with pytest.raises(ValueError, match=r"NaN at index \(0, 3\)"):
        host.encode(x.T, FLOATS["float32"], ELEMENTS["e2m1"], nonfinite=Nonfinite.ELEMENT, **options)


def test_packing_of_empty_rows():
    assert host.pack(np.zeros((3, 0), np.uint8), 6).shape == (3, 0)
    assert host.unpack(np.zeros((3, 0), np.uint8), 6, 0).shape == (3, 0)
    assert host.unpack(np.zeros((0, 3), np.uint8), 6, 4).shape == (0, 4)
