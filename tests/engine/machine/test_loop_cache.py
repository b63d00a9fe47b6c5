"""Tests that compiled loops are stored on disk, and loaded again if no code has changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba.core.caching import CompileResultCacheImpl

import mxnum as mx
from mxnum.engine.loops import rows
from mxnum.engine.loops.panels import of_blocks
from mxnum.engine.loops.random_bits import draw_from_seed
from mxnum.engine.machine import loop_cache
from mxnum.engine.machine.jit import compile_loop
from mxnum.engine.rounding.formulation import fast_quantizing
from mxnum.formats import ELEMENTS, FLOATS

needs_compiler = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="compiled loops")

SEEDED = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, mxnum as mx
q = mx.encode(np.full(64, 1.2, np.float32), "e2m1", rounding="sr", seed=3)
from mxnum.engine.loops import random_bits
fill = random_bits.draw_from_seed(30)._compiled
print(sum(fill.stats.cache_hits.values()), q.tobytes().hex())
"""


def in_fresh_process(folder, *command):
    """Run Python in a new process with a numba cache in the folder, and return the output."""
    environment = {
        **os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "NUMBA_DISABLE_JIT": "0", "PYTHONDONTWRITEBYTECODE": "",
    }  # fmt: skip
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_change_anywhere_in_the_kernel_is_noticed_but_not_where_python_has_its_own_code_from(tmp_path):
    """Check that a loop is compiled again if a function in another module changes.

    numba itself checks only the file of the loop. The changed function is Philox. Without a change,
    the second process must load the loop from the cache. Regression: numba compiled the loop again,
    because the pickle of code read from a .pyc file differs from that of freshly compiled code.
    """
    package = tmp_path / "mxnum"
    shutil.copytree(Path(mx.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))

    def run():
        hits, codes = in_fresh_process(tmp_path, "-c", SEEDED, str(tmp_path)).split()
        return int(hits), codes

    fresh, cached = run(), run()
    assert list(package.glob("engine/loops/__pycache__/random_bits.*.pyc"))
    assert (fresh[0], cached[0]) == (0, 1)
    assert fresh[1] == cached[1]
    philox = package / "definition" / "random.py"
    philox.write_text(philox.read_text().replace("_ROUNDS = 10", "_ROUNDS = 3"))
    changed = run()
    assert changed[0] == 0
    assert changed[1] != fresh[1]


NAMED = """
import sys
import numpy as np, mxnum as mx
x = np.linspace(-3, 3, 2048, dtype=np.float32).reshape(4, 512)
for name in sys.argv[1:]:
    q = mx.quantize(x, name)
    print(q.codes.tobytes().hex(), q.dequantize().tobytes().hex())
"""


@needs_compiler
def test_loops_that_different_processes_compiled_are_told_apart(tmp_path):
    """Check that loops which two processes compiled are not confused in a third process.

    numba numbers functions from the start in each process, so its numbers cannot identify loops.
    """
    names = "mxfp8_e4m3", "mxfp4_e2m1"
    alone = [in_fresh_process(tmp_path, "-c", NAMED, name) for name in names]
    assert in_fresh_process(tmp_path, "-c", NAMED, *names) == "".join(alone)
    assert len(set(alone)) == len(names)
    loops = quantizing("e4m3"), quantizing("e5m2")
    assert loops[0].__qualname__ != loops[1].__qualname__


MIXED = """
import hashlib, json, sys
import numba, numpy as np, mxnum as mx
from numba.core.runtime import rtsys
from mxnum.engine.machine import loop_cache

@numba.njit
def of_user(x):
    sums = np.zeros(3)
    for i in range(3):
        sums[i] = x[i] + len([i, i])
    return sums.sum()

when = sys.argv[1]
if when == "plain":
    loop_cache.TRIED = (0, 0), (0, 0)
x = np.linspace(-3, 3, 4096, dtype=np.float32).reshape(64, 64)
answers = {}
if when == "before":
    answers["user"] = of_user(x.ravel())
q = mx.quantize(x, "mxfp8_e4m3")
digest = hashlib.sha256(q.codes.tobytes() + q.scales.tobytes() + q.dequantize().tobytes())
answers["digest"] = digest.hexdigest()
answers["set up"] = rtsys._init
answers["loaded"] = [name for name in ("scipy.linalg", "numpy.ma", "numba.np.linalg") if name in sys.modules]
if when == "after":
    answers["user"] = of_user(x.ravel())
    answers["new"] = mx.encode(x, "bfloat16", rounding="rtz").tobytes().hex()
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Store loops in a cache from a new process; return its folder and the process's output."""
    folder = tmp_path_factory.mktemp("disk")
    return folder, json.loads(in_fresh_process(folder, "-c", MIXED, "none"))


def test_loops_are_loaded_without_the_compiler(filled):
    folder, fresh = filled
    assert fresh["set up"]
    warm = json.loads(in_fresh_process(folder, "-c", MIXED, "none"))
    assert (warm["set up"], warm["loaded"]) == (False, [])
    assert warm["digest"] == fresh["digest"]


def test_functions_of_users_and_other_loops_compile_before_and_after(filled):
    folder, fresh = filled
    before = json.loads(in_fresh_process(folder, "-c", MIXED, "before"))
    after = json.loads(in_fresh_process(folder, "-c", MIXED, "after"))
    assert before["set up"]
    assert not after["set up"]
    assert before["digest"] == after["digest"] == fresh["digest"]
    x = np.linspace(-3, 3, 4096, dtype=np.float32)
    assert before["user"] == after["user"] == pytest.approx(float(x[:3].astype(float).sum()) + 6)
    assert after["new"] == mx.encode(x, "bfloat16", rounding="rtz").tobytes().hex()


def test_a_numba_that_was_not_tried_loads_them_its_own_way(filled):
    folder, fresh = filled
    plain = json.loads(in_fresh_process(folder, "-c", MIXED, "plain"))
    assert plain["set up"]
    assert plain["digest"] == fresh["digest"]


def test_the_numba_here_was_tried():
    """Check that the installed numba is in the range TRIED of tested versions.

    If this test fails, widen TRIED and run all tests, also with a warm cache, before committing.
    """
    assert loop_cache.TRIED[0] <= numba.version_info.short < loop_cache.TRIED[1]


def tripling():
    def triple(values):
        for i in range(values.size):
            values[i] *= 3

    return triple


@needs_compiler
@pytest.mark.parametrize("fails", ["finding a folder", "storing", "loading"])
def test_without_storage_loops_are_compiled_each_time(monkeypatch, fails):
    def fail(*_):
        raise OSError("no")

    if fails == "finding a folder":
        monkeypatch.setattr(CompileResultCacheImpl, "_locator_classes", [])
    loop = compile_loop(tripling())
    if fails == "storing":
        monkeypatch.setattr(loop._cache._cache_file, "save", fail)
    if fails == "loading":
        monkeypatch.setattr(loop._cache, "_load_overload", lambda *_: {}["an entry that cannot be read"])
        monkeypatch.setattr(loop_cache.FunctionCache, "load_overload", lambda *_: None)
    values = np.array([1, 2], np.int16)
    loop(values)
    assert values.tolist() == [3, 6]


@needs_compiler
def test_arguments_have_the_types_that_numba_says():
    loop = compile_loop(tripling())
    frozen = np.zeros(3, np.uint8)
    frozen.flags.writeable = False
    arrays = [np.zeros((2, 3), np.int64), np.zeros((2, 3), np.float32).T, np.zeros((4, 4))[::2, ::2], frozen]
    for value in [*arrays, tuple(arrays), ((1, arrays[0]), 2), 1, 1.5, True, None, (1, 2), (), np.int8(1), {}]:
        assert loop.typeof_pyval(value) == type(loop).typeof_pyval(loop, value)


def quantizing(element="e4m3", rounding=mx.Rounding.RNE, run=32, draws=False):
    """Make a quantizing loop and all functions that it calls anew, and return the loop."""
    source, modes = FLOATS["float32"], (rounding, mx.Overflow.SATURATE, mx.ScaleRule.FLOOR, None)
    fast = fast_quantizing.__wrapped__(source, ELEMENTS[element], *modes)
    elements = rows._quantizing_kernel.__wrapped__(fast.special or fast.function, draws, run, True)
    within = of_blocks.__wrapped__(source, run).function, elements.function
    loop = rows._quantize.__wrapped__(source, 8, within)
    return getattr(loop, "py_func", loop)


def test_descriptions_are_equal_where_closures_are():
    assert loop_cache.description(quantizing()) == loop_cache.description(quantizing())
    assert repr(loop_cache.description(quantizing())) == repr(loop_cache.description(quantizing()))
    others = [quantizing("e5m2"), quantizing(rounding=mx.Rounding.RTZ), quantizing(draws=True)]
    others += [quantizing(run=run) for run in (0, 16)]
    fills = [draw_from_seed.__wrapped__(bits).function for bits in (30, 8)]
    described = [repr(loop_cache.description(f)) for f in (quantizing(), *others, *fills)]
    assert len(set(described)) == len(described)


class Pair(NamedTuple):
    a: object
    b: object


class Swapped(NamedTuple):
    b: object
    a: object


class Number(Enum):
    ONE = 1


def test_values_of_different_types_are_described_differently():
    values = [
        1, True, 1.0, "1", b"1", None, (), (1,), ((1,),), Pair(1, 2), Swapped(1, 2), (1, 2), Number.ONE, int, np.int32,
        0.0, -0.0, ELEMENTS["e4m3"], ELEMENTS["e5m2"], lambda: 1, lambda: 2, lambda x=1: x, lambda x=2: x,
    ]  # fmt: skip
    assert len({repr(loop_cache.description(value)) for value in values}) == len(values)


@needs_compiler
def test_what_has_no_description_is_told_apart_as_numba_does_it():
    def adding(table):
        def add(values):
            for i in range(values.size):
                values[i] += table[i]

        return add

    one, two = (adding(np.array([n, n], np.int16)) for n in (1, 2))
    with pytest.raises(TypeError, match="ndarray"):
        loop_cache.description(one)
    values = np.zeros(2, np.int16)
    for loop in (compile_loop(one), compile_loop(two)):
        loop(values)
    assert values.tolist() == [3, 3]


@needs_compiler
def test_constants_tell_apart_what_has_no_description():
    def adding(text):
        scope = {"table": np.array([1, 1], np.int16)}
        exec(f"def make(table):\n def add(values):\n  values[0] += table[0] + {text}\n return add", scope)
        return scope["make"](scope["table"])

    made = [adding(text) for text in ("5", "6", "(lambda: 5)()", "(lambda: 6)()")]
    for function in made:
        loop_cache.name_by_content(function)
    assert len({function.__qualname__ for function in made}) == len(made)
