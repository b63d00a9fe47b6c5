"""The loops: compiled code and the plain Python of the same functions agree, and each walks the blocks it should."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from mxnum.engine import cpu
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding
from mxnum.scalar.convert import make_decode, make_encode
from tests import samples

FLOAT32 = FLOATS["float32"]


def test_first_block():
    assert cpu.first_block((5, 7, 0), (2, 4, 32), (12, 3, 1)) == 2 * 12 + 1 * 3


def test_extents_see_each_element_once():
    x = np.array([[1, -3, np.inf, 2], [np.nan, 0, -0.0, 1e-45]], np.float32)
    amax, state = np.zeros(4, np.int32), np.zeros(4, np.uint8)
    cpu.block_extents(FLOAT32)(x.view(np.int32), (1, 2), (2, 1), amax, state)
    assert amax.view(np.float32).tolist() == [3, 2, 0, np.float32(1e-45)]
    assert state.tolist() == [0, cpu.HAS_INFINITY, cpu.HAS_NAN, 0]


def test_range_of_blocks_without_finite_elements_stays_empty():
    x = np.array([[np.nan, np.inf, -1, 5]], np.float32)
    top = FLOAT32.max_code + 1
    largest, smallest = np.full(2, -top, np.int32), np.full(2, top, np.int32)
    cpu.block_range(FLOAT32)(x.view(np.int32), (1, 2), (2, 1), largest, smallest)
    assert largest[0] == -top
    assert smallest[0] == top
    assert largest[1:].view(np.float32)[0] == 5
    assert smallest[1] == -0x3F800000


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("name", samples.ELEMENTS)
def test_compiled_encoders_equal_the_definition_on_numpy(name, rounding):
    target = ELEMENTS[name]
    bits = np.concatenate(
        [samples.boundary_patterns(FLOAT32, target, 121), samples.random_patterns(FLOAT32, 5000, name, rounding)]
    ).reshape(1, -1)
    words = samples.generator("compiled", name).integers(0, 1 << 30, bits.shape, dtype=np.uint32)
    scales = np.array([121], np.uint8)
    got = np.empty(bits.shape, np.uint8)
    stochastic = rounding == Rounding.SR
    loop = cpu.encode_elements(FLOAT32, target, rounding, Overflow.SATURATE, 30 if stochastic else None)
    loop(bits, (1, bits.size), (1, 1), scales, got, words if stochastic else 0)
    encode = make_encode(FLOAT32, target, rounding, Overflow.SATURATE)
    want = encode(bits.astype(np.int64), np.int64(121), words.astype(np.int64))
    samples.assert_same(f"{name} {rounding}", bits, got, want)


def test_compiled_decoders_equal_the_definition_on_numpy():
    for name, target in (("e5m2", "float32"), ("int4", "float16"), ("e2m3", "float64")):
        source, fmt = ELEMENTS[name], FLOATS[target]
        codes = np.arange(1 << source.bits, dtype=np.uint8).reshape(1, -1)
        for scale in (0, 100, 254, 255):
            out = np.empty(codes.shape, f"i{fmt.bits // 8}")
            cpu.decode_elements(source, fmt)(codes, (1, codes.size), (1, 1), np.array([scale], np.uint8), out, 0)
            want = np.broadcast_to(make_decode(source, fmt)(codes.astype(np.int64), np.int64(scale)), codes.shape)
            samples.assert_same(f"{name} {target} {scale}", codes.astype(np.int16), out, want.astype(out.dtype))


PLAIN = """
import numpy as np, mxnum as mx
from numba import config
x = np.random.default_rng(3).standard_normal((3, 40)).astype(np.float32) * np.float32(2.0**-20)
x[0, 3], x[1, 5], x[2, 0] = np.inf, np.nan, -0.0
digest = []
for dtype, fmt, options in (
    ("float64", "mxint4", {}),
    ("float32", "mxfp8_e5m2", {"rounding": "sr", "seed": 9}),
    ("float32", "mxfp8_e5m2", {"axis": 0, "scale_rule": "even", "overflow": "ieee"}),
    ("float16", "mxfp6_e2m3", {"block_shape": (2, 4), "rounding": "rto"}),
    ("float16", "mxfp6_e2m3", {"offset": "float16", "nonfinite": "block"}),
    ("float32", "mxint4", {"offset": "float16", "offset_range": "half"}),
):
    y = x.astype(dtype)
    q = mx.quantize(y, fmt, **options)
    digest.append(q.codes.tobytes().hex() + q.scales.tobytes().hex() + q.pack().tobytes().hex())
    digest.append(q.dequantize("float32").tobytes().hex() + mx.fake_quantize(y, fmt, **options).tobytes().hex())
print(config.DISABLE_JIT, hash(tuple(digest)))
"""


def test_results_without_compilation_are_the_same():
    """NUMBA_DISABLE_JIT=1 runs the loops as plain Python: the same bits, and code coverage can see them."""
    answers = []
    for disabled in ("0", "1"):
        environment = {**os.environ, "NUMBA_DISABLE_JIT": disabled, "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PLAIN], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout.split())
    assert [a[0] for a in answers] == ["0", "1"]
    assert answers[0][1] == answers[1][1]
