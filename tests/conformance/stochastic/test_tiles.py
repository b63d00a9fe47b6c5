from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum import reference
from mxnum.conformance.bits import Generator
from mxnum.conformance.calling import Implementation
from mxnum.conformance.operations import make_task
from mxnum.conformance.stochastic.chances import chances, constant
from mxnum.conformance.stochastic.tiles import Tally, constant_tile, largest_quotient, make_tile


def tile_of(operation, fmt="mxfp4_e2m1", **modes):
    task = make_task(operation, fmt, **modes)
    return make_tile(task, chances(task, Generator(0), 1 / 16, largest_quotient(task)), Generator(1))


@pytest.mark.parametrize("rule", list(mx.ScaleRule))
@pytest.mark.parametrize("overflow", ["saturate", "ieee"])
def test_cases_in_blocks_have_the_intended_scale_and_fraction(rule, overflow):
    tile = tile_of("quantize", "mxfp8_e5m2", scale_rule=rule, overflow=overflow)
    values = tile.x.view(np.float32).astype(np.float64)
    assert len(set(tile.scales[~tile.is_still].tolist())) == 5
    for row in np.flatnonzero(~tile.is_still):
        code = reference.shared_scale([float(v) for v in values[row]], "e5m2", scale_rule=str(rule))
        assert code == tile.scales[row]
        for value, number in zip(values[row], tile.ids[row], strict=True):
            if number < len(tile.chances):
                assert value / 2.0 ** (code - 127) == tile.chances[number].value


@pytest.mark.parametrize("operation", ["encode", "quantize"])
def test_numbers_without_a_chance_get_one_code_for_any_random_word(operation):
    tile = tile_of(operation)
    values = tile.x.view(np.float32)
    for word in (0, (1 << 30) - 1):
        words = np.full(values.shape, word, np.uint32)
        if operation == "encode":
            codes = mx.encode(values, "e2m1", rounding="sr", random_bits=words)
        else:
            codes = mx.quantize(values, "mxfp4_e2m1", rounding="sr", random_bits=words).codes
        stays = tile.ids >= len(tile.chances)
        assert np.array_equal(codes[stays], tile.codes[stays])
    assert tile.shares.min() >= 16
    assert np.signbit(values[tile.is_still][values[tile.is_still] == 0]).any()
    assert np.isinf(values).any()


def test_tally_counts_the_codes_of_each_number():
    tile = tile_of("encode")
    seen = []

    def rounds_up(x):
        seen.append(x.copy())
        x[:] = 0  # the kernel gets a copy, so the expected answers do not change
        return mx.encode(seen[-1], "e2m1", rounding="sr", random_bits=np.full(x.shape, (1 << 30) - 1, np.uint32))

    tally = Tally(Implementation(rounds_up), tile, 3, Generator(2))
    for _ in range(2):
        tally.draw(None)
    assert np.array_equal(seen[0], seen[1])
    for number, chance in enumerate(tile.chances):
        if chance.delta > 2.0**-30:
            assert tally.codes[number, chance.above] == tally.codes[number].sum() == 6 * tile.shares[number]


def test_codes_of_blocks_with_a_wrong_scale_are_left_out():
    tile = tile_of("quantize")

    def kernel(x, seed):
        q = mx.quantize(x, "mxfp4_e2m1")
        return q.codes, q.scales + np.uint8(seed)

    tally = Tally(Implementation(kernel), tile, 1, Generator(2))
    tally.draw(1)
    assert tally.codes[: len(tile.chances)].sum() == 0
    tally.draw(0)
    assert tally.codes[: len(tile.chances)].sum() == tile.shares.sum()
    assert (tally.scales.sum(axis=1) == 2).all()


def test_constant_tile_repeats_one_number():
    task = make_task("quantize", "mxfp4_e2m1")
    tile = constant_tile(task, constant(task, 0.5, largest_quotient(task)), Generator(0))
    assert tile.x.shape == (1, 32)
    assert (tile.ids == 0).sum() == 31
