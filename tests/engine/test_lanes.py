"""32-bit lanes compute what Python integers do, wherever the dialect stays within its word."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from mxnum.engine.jit import register
from mxnum.engine.lanes import add_float32, integer, lane, subtract_float32
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding
from mxnum.scalar.convert import make_encode
from tests.samples import boundary_patterns

FLOAT32 = FLOATS["float32"]


@pytest.mark.parametrize("name", ["e4m3", "int4"])
def test_a_function_on_lanes_is_the_function(name):
    encode = register(make_encode(FLOAT32, ELEMENTS[name], Rounding.SR, Overflow.SATURATE))

    @numba.njit
    def on_lanes(x, scale, random):
        return integer(encode(lane(x), lane(scale), lane(random)))

    for x in boundary_patterns(FLOAT32, ELEMENTS[name]).tolist():
        for scale, random in ((127, 1 << 29), (0, 0), (255, 5)):
            assert on_lanes(x, scale, random) == encode(x, scale, random)
    assert on_lanes.nopython_signatures[0].return_type == numba.types.int32


def test_floats_are_added_as_bit_patterns():
    @numba.njit
    def both(a, b):
        return integer(add_float32(lane(a), lane(b))), integer(subtract_float32(lane(a), lane(b)))

    rng = np.random.default_rng(1)
    values = (rng.standard_normal((200, 2)) * np.exp2(rng.integers(-140, 120, (200, 2)))).astype(np.float32)
    for (a, b), (x, y) in zip(values.view(np.int32).tolist(), values, strict=True):
        want = [int((x + y).view(np.int32)), int((x - y).view(np.int32))]
        assert list(both(a, b)) == want == [add_float32(a, b), subtract_float32(a, b)]
