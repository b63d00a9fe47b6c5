"""Tests of rounding at any scale, on samples. proofs/theorems/any_scale.py covers all inputs."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.definition.convert import make_decode, make_encode
from mxnum.engine.rounding import any_scale, float_additions, paths
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow
from tests import samples

FLOAT32 = FLOATS["float32"]


@pytest.mark.parametrize("rounding", paths.ROUNDINGS)
@pytest.mark.parametrize("name", ELEMENTS)
def test_codes_and_values_equal_the_definition(name, rounding):
    element = ELEMENTS[name]
    encode = make_encode(FLOAT32, element, rounding, Overflow.IEEE)
    decode, constants = make_decode(element, FLOAT32), float_additions.constants(element, rounding, Overflow.IEEE)
    by_parity = float_additions.breaks_ties_by_parity(element)
    code, value = (make(rounding, by_parity) for make in (any_scale.make_code_anywhere, any_scale.make_value_anywhere))
    for scale in (0, 1, 5, 127, 250, 254):
        bits = [samples.boundary_patterns(FLOAT32, element, scale), samples.random_patterns(FLOAT32, 1000, scale)]
        bits = np.concatenate(bits).astype(np.int64)
        bits = bits[(bits & 0x7FFFFFFF) <= FLOAT32.max_code]
        random = samples.generator("beyond", name).integers(0, 1 << 30, bits.size)
        want = encode(bits, np.int64(scale), random)
        got = code(bits, np.int64(scale), random, constants)
        samples.assert_same(f"code {name} {rounding} {scale}", bits, got, want)
        with np.errstate(all="ignore"):
            got = value(bits, np.int64(scale), random, constants)
        samples.assert_same(f"value {name} {rounding} {scale}", bits, got, decode(want, np.int64(scale)))
