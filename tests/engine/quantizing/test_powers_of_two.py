"""Tests that calls with equal settings share one conversion. `test_host` tests the results."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.engine.loops import columns, rows
from mxnum.engine.loops.panels import NO_WORDS
from mxnum.engine.quantizing.plan import Loops
from mxnum.engine.quantizing.powers_of_two import Modes, from_codes, to_codes, to_values
from mxnum.engine.traversal.block_walk import Walk
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule
from tests import samples

FLOAT32, E4M3 = FLOATS["float32"], ELEMENTS["e4m3"]
ROWS, SHORT, COLUMNS, TILES = (
    Walk(1, 4, 64, 1, 32),
    Walk(1, 4, 64, 1, 16),
    Walk(1, 64, 64, 32, 1),
    Walk(1, 64, 64, 4, 4),
)


def modes(name, **changes):
    """Return the usual modes of a conversion; `changes` replace some of them."""
    usual = Modes(FLOAT32, ELEMENTS[name], Rounding.RNE, Overflow.SATURATE, ScaleRule.FLOOR, Nonfinite.BLOCK, False)
    return usual._replace(**changes)


def loop(kind, walk):
    return kind.fast(walk, None)


def test_a_conversion_is_one_object():
    assert to_codes(modes("e4m3")) is to_codes(modes("e4m3"))
    assert from_codes(E4M3, FLOAT32) is not from_codes(ELEMENTS["e5m2"], FLOAT32)


def test_loops_are_shared_by_elements():
    one, other = (to_codes(modes(name, rounding=Rounding.RTZ)) for name in ("e4m3", "int8"))
    assert loop(one, ROWS) is loop(other, ROWS)


def test_the_commonest_conversions_have_their_constants_compiled_in():
    usual, short, other_rule, other_overflow = (
        {loop(to_codes(modes(name, **change)), walk) for name in ("e4m3", "int8")}
        for walk, change in (
            (ROWS, {}), (SHORT, {}), (ROWS, {"rule": ScaleRule.RCEIL}), (ROWS, {"overflow": Overflow.IEEE})
        )
    )  # fmt: skip
    # Integer formats have only one overflow mode.
    assert (len(usual), len(short), len(other_overflow - usual)) == (2, 1, 1)
    assert other_rule == usual  # the scale rule is an argument of the loop, so all rules share one loop
    in_columns, in_tiles = (
        {loop(to_values(modes(name)), walk) for name in ("e4m3", "int8")} for walk in (COLUMNS, TILES)
    )
    assert (len(in_columns), len(in_tiles)) == (2, 1)


@pytest.mark.parametrize("walk", [ROWS, Walk(1, 4, 70, 1, 32), Walk(1, 4, 300, 1, 32), COLUMNS, TILES], ids=str)
@pytest.mark.parametrize("place", [0, 37, 200])
def test_what_is_marked_is_redone_and_nothing_else(walk, place, monkeypatch):
    """Check that a NaN or a subnormal number changes no codes outside its block.

    The fast loop marks each group of blocks that a slower loop must compute again. After the call,
    all marks must be clear.
    """
    x = samples.generator("marks").standard_normal(walk.elements).astype(np.float32)
    scales = np.zeros(walk.elements, np.uint8)
    kind = Loops(to_codes(modes("e4m3")), walk, None)
    usual = np.zeros(x.size, np.uint8)
    kind(x, usual, (scales,), None, None, NO_WORDS, 1)
    for value in (np.nan, np.float32(1e-44)):
        changed = x.copy()
        changed[place] = value
        codes, left = np.full(x.size, 0xAA, np.uint8), kind.marks()
        kind.run(kind.flat(changed, codes, scales), left, NO_WORDS, 1)
        assert not left.any()
        differ = np.flatnonzero(codes != usual)
        assert differ.size
        if walk.along_rows:
            row = place // walk.columns
            block = slice(row * walk.columns + place % walk.columns // walk.run * walk.run, (row + 1) * walk.columns)
            assert differ.min() >= block.start
            assert differ.max() < min(block.start + walk.run, block.stop)


@pytest.mark.parametrize(
    ("walk", "count"),
    [(ROWS, 0), (Walk(1, 4, 70, 1, 32), 0), (Walk(1, 4, 300, 1, 32), 4), (SHORT, 0), (COLUMNS, 0)],
    ids=str,
)
def test_fast_loops_leave_no_ordinary_block(walk, count, monkeypatch):
    """Check how many groups fast loops mark; marking more would change no result, only the time.

    A loop with the block length compiled in marks the short block at the end of each row.
    """
    x = samples.generator("ordinary").standard_normal(walk.elements).astype(np.float32)
    left = []
    monkeypatch.setattr(Loops, "_redo_marked", lambda loops, flat, marks, *others: left.append(np.count_nonzero(marks)))
    sides = (np.zeros(walk.elements, np.uint8),)
    Loops(to_codes(modes("e4m3")), walk, None)(x, np.zeros(x.size, np.uint8), sides, None, None, NO_WORDS, 1)
    assert sum(left) == count


def test_loops_have_one_shape_for_rows_and_columns():
    for name in ("quantize", "decode"):
        assert callable(getattr(rows, name))
        assert callable(getattr(columns, name))


def test_words_of_any_order_go_with_their_elements():
    """Check that arrays and random words in Fortran order and in C order give equal results."""
    for shape, options in (
        ((200, 104), {"block_size": 16}), ((5000, 64), {}), ((300, 150), {"block_size": 17}),
        ((130, 331), {"block_shape": (4, 8), "sr_bits": 7}), ((96, 40), {"axis": 0}),
    ):  # fmt: skip
        rng = samples.generator("other order", shape)
        x, words = rng.standard_normal(shape, np.float32), rng.integers(0, 1 << 32, shape, dtype=np.uint32)
        x[3, 5], x[4, 10:15], x[20, 21] = np.nan, 1e-44, np.inf
        kind = {"format": "mxfp6_e3m2", "rounding": "sr", **options}
        for bits in ({"random_bits": words}, {"seed": 1 << 40, "stream": 3}):
            want = mx.quantize(x, **bits, **kind)
            for threads in (1, 3):
                got = mx.quantize(np.asfortranarray(x), threads=threads, **bits, **kind)
                assert got.codes.flags.f_contiguous
                samples.assert_same(f"codes {shape}", None, got.codes, want.codes)
                samples.assert_same(f"scales {shape}", None, got.scales, want.scales)
        got = mx.quantize(x, random_bits=np.asfortranarray(words), **kind)
        samples.assert_same(f"codes {shape}", None, got.codes, mx.quantize(x, random_bits=words, **kind).codes)
