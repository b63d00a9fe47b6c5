"""How the loops along rows find codes in memory, one byte each or packed, and floats, as they are or too wide.

Packed codes are made and read a group at a time. In between they lie in a stage, one byte each, which stays in the
first cache; so the loops, and what they compute, are the same. In the same way float64 numbers are narrowed a group at
a time: loops over lanes of 32 bits have twice as many in a register.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from mxnum.engine.lanes import load, store
from mxnum.engine.magic import make_widen
from mxnum.engine.streams import make_pack_run, make_unpack_run
from mxnum.formats import ElementFormat
from mxnum.scalar.word import dialect


class Storage(NamedTuple):
    """The steps of a loop that differ; `stored` is what the caller has, in rows, `stage` has room for a group."""

    #: (stored, stage) -> where the loop reads or writes codes.
    into: Callable[..., Any]
    #: (base) -> what the index there of an element is less than its index in the array, in a group that begins at base.
    shift: Callable[..., Any]
    #: (stored, stage, row, length, column, count): gets so many codes from that column of a row on to the stage.
    fetch: Callable[..., Any]
    #: The inverse, once they are made.
    finish: Callable[..., Any]
    #: Whether there is a stage.
    staged: bool


@dialect
def _stored_itself(stored, stage):
    return stored


@dialect
def _stage(stored, stage):
    return stage


@dialect
def _none(base):
    return 0


@dialect
def _all(base):
    return base


@dialect
def _nothing(stored, stage, row, length, column, count):
    pass


#: One after the other, as they are: codes of a byte, and values of any size.
DIRECT = Storage(_stored_itself, _none, _nothing, _nothing, staged=False)


@cache
def packed_in_rows(bits: int) -> Storage:
    """Rows of codes of so many bits that each begin at a byte, as do the groups in them."""
    pack_run, unpack_run = make_pack_run(bits), make_unpack_run(bits)

    @dialect
    def place_of(row, length, column):
        return row * ((length * bits + 7) // 8) + column * bits // 8

    @dialect
    def fetch(stored, stage, row, length, column, count):
        unpack_run(stored, place_of(row, length, column), stage, 0, count)

    @dialect
    def finish(stored, stage, row, length, column, count):
        pack_run(stage, 0, count, stored, place_of(row, length, column))

    return Storage(_stage, _all, fetch, finish, staged=True)


@cache
def make_narrow(source: ElementFormat) -> Callable[..., Any]:
    """(x, stage, start, count): so many floats from an index on as float32 numbers that round alike, in the stage."""
    widen = make_widen(source)

    @dialect
    def narrow(x, stage, start, count):
        for i in range(count):
            store(stage, i, widen(load(x, start + i)))

    return narrow
