"""Compiling the dialect: numba runs the same function objects."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import int64

from mxnum.engine import jit
from mxnum.engine.jit import compile_loop, compile_scalar, register
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding, ScaleRule
from mxnum.scalar.convert import make_encode
from mxnum.scalar.offset import make_midpoint
from mxnum.scalar.random import philox4x32
from mxnum.scalar.scale import make_shared_scale
from tests import samples


@pytest.mark.parametrize("rounding", [Rounding.RNE, Rounding.SR])
def test_a_compiled_encoder_equals_the_function_object(rounding):
    source, target = FLOATS["float64"], ELEMENTS["e2m3"]
    encode = make_encode(source, target, rounding, Overflow.SATURATE)
    compiled = compile_scalar(encode, int64, int64, int64)
    for bits in samples.boundary_patterns(source, target, 130).tolist()[:400]:
        assert compiled(bits, 130, 777) == encode(bits, 130, 777)


def test_lazy_signatures_and_multiple_results():
    compiled = compile_scalar(philox4x32)
    assert compiled(0, 0, 0, 0, 0, 0) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    midpoint = make_midpoint(FLOATS["float32"])
    assert compile_scalar(midpoint)(0x3F800000, 0x40000000) == midpoint(0x3F800000, 0x40000000) == 0x3E00


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


SEEDED = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, mxnum as mx
q = mx.encode(np.full(64, 1.2, np.float32), "e2m1", rounding="sr", seed=3)
from mxnum.engine import draws, formulation, rows
from mxnum.formats import ELEMENTS, FLOATS
modes = mx.Rounding.SR, mx.Overflow.SATURATE, mx.ScaleRule.FLOOR, None
fast = formulation.fast_quantizing(FLOATS["float32"], ELEMENTS["e2m1"], *modes)
loop = rows.quantize_rows(fast.function, FLOATS["float32"], True, draws.draw_from_seed(30), False)
print(sum(loop.stats.cache_hits.values()), q.tobytes().hex())
"""


def test_the_disk_cache_notices_a_change_anywhere_in_the_kernel(tmp_path):
    """numba's own stamp covers the file of the loop only; Philox is reached through a global of another module."""
    package = tmp_path / "mxnum"
    shutil.copytree(Path(jit.__file__).parents[1], package, ignore=shutil.ignore_patterns("__pycache__"))

    def run():
        command = [sys.executable, "-B", "-c", SEEDED, str(tmp_path)]
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_DISABLE_JIT": "0"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
        hits, codes = done.stdout.split()
        return int(hits), codes

    fresh, cached = run(), run()
    assert (fresh[0], cached[0]) == (0, 1)
    assert fresh[1] == cached[1]
    philox = package / "scalar" / "random.py"
    philox.write_text(philox.read_text().replace("_ROUNDS = 10", "_ROUNDS = 3"))
    changed = run()
    assert changed[0] == 0
    assert changed[1] != fresh[1]
