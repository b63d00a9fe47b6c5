"""Tests that numba compiles the definition's function objects, and loops that call them."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from numba import int64
from numba.core.dispatcher import Dispatcher

from mxnum.definition.convert import make_encode
from mxnum.definition.offset import make_midpoint
from mxnum.definition.random import philox4x32
from mxnum.definition.scale import make_shared_scale
from mxnum.definition.word import dialect, select
from mxnum.engine.machine.jit import compile_loop, forbid_inlining, not_inlined, register
from mxnum.engine.machine.lanes import add_float32, float64_to_float32, lane, load, low_word, store, wide
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding, ScaleRule
from tests import samples


@pytest.mark.parametrize("rounding", [Rounding.RNE, Rounding.SR])
def test_a_compiled_encoder_equals_the_function_object(rounding):
    source, target = FLOATS["float64"], ELEMENTS["e2m3"]
    encode = make_encode(source, target, rounding, Overflow.SATURATE)
    compiled = numba.njit((int64, int64, int64))(register(encode))
    for bits in samples.boundary_patterns(source, target, 130).tolist()[:400]:
        assert compiled(bits, 130, 777) == encode(bits, 130, 777)


def test_lazy_signatures_and_multiple_results():
    compiled = numba.njit(register(philox4x32))
    assert compiled(0, 0, 0, 0, 0, 0) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    midpoint = make_midpoint(FLOATS["float32"])
    assert numba.njit(register(midpoint))(0x3F800000, 0x40000000) == midpoint(0x3F800000, 0x40000000) == 0x3E00


def test_registering_twice_is_harmless_and_returns_the_function():
    rule = make_shared_scale(FLOATS["float32"], ELEMENTS["e4m3"], ScaleRule.EVEN)
    assert register(rule) is rule
    assert register(rule) is rule

    def loop(values, out):
        for i in range(values.size):
            out[i] = rule(values[i])

    values, out = np.array([0x3F800000, 0x7F7FFFFF], np.int32), np.zeros(2, np.int64)
    compile_loop(loop)(values, out)
    assert out.tolist() == [rule(int(v)) for v in values]


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="compiled loops")
def test_compiling_is_logged_and_loading_from_disk_is_not(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    caplog.set_level("INFO", "mxnum")

    def loop(values):
        values[0] = 1

    for told in (1, 1):  # the second time, the compiled loop is found on disk
        compile_loop(loop)(np.zeros(1))
        assert [record.getMessage()[:9] for record in caplog.records] == ["Compiling"] * told


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="compiled loops")
@pytest.mark.parametrize("is_marked", [True, False])
def test_forbid_inlining_keeps_a_call(is_marked):
    def add_up(values, start):
        forbid_inlining()
        total = 0
        for i in range(start, values.size):
            total += values[i] ^ i
        return total

    def add_up_within(values, start):
        return values[start:].sum()

    called = not_inlined(add_up) if is_marked else dialect(add_up_within)
    register(called)
    compiled = numba.njit(lambda values: called(values, 1) + 1)
    values = np.arange(9)
    assert compiled(values) == called(values, 1) + 1
    functions = [line for code in compiled.inspect_llvm().values() for line in code.splitlines() if "define" in line]
    assert any("add_up" in line for line in functions) == is_marked


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="compiled loops")
def test_nothing_is_compiled_between_a_loop_and_its_primitives():
    @dialect
    def mixed(a, b):
        narrowed = float64_to_float32(wide(a) << 32)
        return select(a > 1, add_float32(a, b) & 0x7FFF, (low_word(wide(b)) - 1) | narrowed)

    def loop(values, out):
        for i in range(values.size):
            store(out, i, mixed(load(values, i), lane(i) << 1))

    compiled, compile_one = set(), Dispatcher.compile
    values, out = np.array([0, 1, 1 << 30], np.int32), np.zeros(3, np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "compile", lambda self, sig: compiled.add(self.py_func) or compile_one(self, sig))
        numba.njit(register(loop))(values, out)
    assert out.tolist() == [mixed(int(value), 2 * i) for i, value in enumerate(values)]
    of_overloads = [function.__qualname__ for function in compiled if function not in (loop, mixed)]
    assert len(of_overloads) == 1  # the overload of `wide`
    assert "_compile_wide" in of_overloads[0]
