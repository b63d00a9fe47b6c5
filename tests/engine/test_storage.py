"""Where loops put codes: the stage of a group of packed ones, whatever their width and place."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.engine import packing, storage
from mxnum.engine.jit import compile_loop
from tests import samples


def test_direct_storage_is_the_array_itself():
    codes, stage = np.arange(4, dtype=np.uint8), np.zeros(1, np.uint8)
    assert storage.DIRECT.into(codes, stage) is codes
    assert storage.DIRECT.shift(7) == 0
    assert not storage.DIRECT.staged
    storage.DIRECT.finish(codes, stage, 0, 4, 0, 4)
    storage.DIRECT.fetch(codes, stage, 0, 4, 0, 4)
    assert codes.tolist() == [0, 1, 2, 3]
    assert stage[0] == 0


@pytest.mark.parametrize("bits", [3, 4, 5, 6, 7])
def test_groups_of_rows_go_through_the_stage(bits):
    length, column, count = 77, 16, 61
    codes = samples.generator("stage", bits).integers(0, 1 << bits, (3, length)).astype(np.uint8)
    packed, kind = packing.pack(codes, bits), storage.packed_in_rows(bits)
    assert kind.staged
    fetch, finish = (compile_loop(_as_loop(step)) for step in (kind.fetch, kind.finish))
    for step_fetch, step_finish in ((fetch, finish), (kind.fetch, kind.finish)):  # compiled, and as plain Python
        stage, made = np.zeros(64, np.uint8), packed.copy()
        assert kind.into(made, stage) is stage
        assert kind.shift(5) == 5
        step_fetch(packed.reshape(-1), stage, 1, length, column, count)
        assert np.array_equal(stage[:count], codes[1, column:])
        made[1, column * bits // 8 :] = 0
        step_finish(made.reshape(-1), stage, 1, length, column, count)
        assert np.array_equal(made, packed)


def _as_loop(step):
    def loop(stored, stage, row, length, column, count):
        step(stored, stage, row, length, column, count)

    return loop
