"""Tests that results do not depend on the process's flush-to-zero mode or rounding direction."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
from contextlib import contextmanager

import numpy as np
import pytest

import mxnum as mx
from mxnum import reference, stacks
from tests import samples

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or not ctypes.util.find_library("m") or platform.system() != "Linux",
    reason="sets the SSE control register through the C library of Linux on x86-64",
)

FLUSH_TO_ZERO, DENORMALS_ARE_ZERO = 0x8000, 0x0040
DOWNWARD, UPWARD, TOWARD_ZERO = 0x2000, 0x4000, 0x6000
MXCSR = 28  # byte offset of the register MXCSR in glibc's fenv_t


@contextmanager
def control_bits(bits):
    """Set bits of the SSE control register, and restore it afterwards."""
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    saved, changed = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
    libm.fegetenv(saved)
    libm.fegetenv(changed)
    register = int.from_bytes(changed.raw[MXCSR : MXCSR + 4], "little") | bits
    ctypes.memmove(ctypes.addressof(changed) + MXCSR, register.to_bytes(4, "little"), 4)
    libm.fesetenv(changed)
    try:
        yield
    finally:
        libm.fesetenv(saved)


#: Calls (format, options, type of values). The calls are few, because each must be compiled.
WAYS = [
    ("mxfp8_e4m3", {}, "float64"),
    ("mxfp4_e2m1", {"offset": "float16"}, "float32"),
    ("mxint8", {"rounding": "sr", "seed": 5}, "float16"),
    ("mxfp8_e4m3", {"scale_rule": "rceil", "axis": 0}, "bfloat16"),
]


def everything(x):
    """Return the bytes of results for x; each result comes from a different compiled loop."""
    parts = []
    for fmt, options, values in WAYS if x.dtype == np.float32 else WAYS[:1]:
        q = mx.quantize(x, fmt, **options)
        parts += [q.codes, q.scales, q.dequantize(values)]
    parts += [mx.encode(x, "bfloat16", rounding="rto"), mx.fake_quantize(x, "mxfp6_e3m2"), mx.hadamard(x)]
    if x.dtype == np.float32:
        held = mx.quantize(x, "mxfp4_e2m1", packed=True)
        parts += [held.pack(), held.scales, held.dequantize(), mx.encode(x, "float16")]
    return [p.tobytes() for p in parts]


def inputs(dtype):
    rng = samples.generator("environment", dtype)
    tiny = np.finfo(dtype).smallest_subnormal
    # Fast loops convert only some blocks of x; the definition converts the other blocks.
    x = rng.standard_normal((32, 256)).astype(dtype)
    x[0] *= tiny * 1000
    x[1] = tiny * np.arange(256)
    x[2] *= np.finfo(dtype).max / 8
    x[3, ::2] *= 1e-30
    return x


def test_the_environment_really_changes():
    one, small = np.ones(1, np.float32), np.full(1, 2.0**-126, np.float32)
    with control_bits(FLUSH_TO_ZERO | DENORMALS_ARE_ZERO):
        flushed = small / 2
    with control_bits(UPWARD):
        up = one + np.float32(2.0**-30)
    assert flushed[0] == 0
    assert small[0] / 2 != 0
    assert up[0] > 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "bits", [FLUSH_TO_ZERO | DENORMALS_ARE_ZERO, UPWARD, DOWNWARD, TOWARD_ZERO | FLUSH_TO_ZERO], ids=hex
)
def test_results_do_not_change(dtype, bits):
    x = inputs(dtype)
    want = everything(x)
    with control_bits(bits):
        got = everything(x)
    assert got == want


RULE = "four_over_six_absolute"
#: Keyword arguments: no tensor scale, or a subnormal tensor scale as a number or an array.
TENSOR_SCALES = {
    "found": {},
    "number": {"tensor_scale": 3 * 2.0**-140},
    "array": {"tensor_scale": np.array([[0x123]], np.uint32).view(np.float32)},
}


@pytest.mark.parametrize("bits", [FLUSH_TO_ZERO | DENORMALS_ARE_ZERO, UPWARD | FLUSH_TO_ZERO], ids=hex)
@pytest.mark.parametrize("tensor_scale", TENSOR_SCALES)
def test_four_over_six_of_subnormal_numbers(tensor_scale, bits):
    # Regression: exact sums were computed from floats, and subnormal floats were read as zeros.
    draw = samples.generator("four over six", tensor_scale)
    x = (draw.integers(1, 1 << 22, (24, 16)) >> draw.integers(0, 9, (24, 1))).astype(np.uint32).view(np.float32)
    options = TENSOR_SCALES[tensor_scale]
    as_array = {name: np.asarray(value, np.float32) for name, value in options.items()}
    want, six = (mx.quantize(x, "nvfp4", scale_rule=rule, **options) for rule in (RULE, "nearest"))
    assert (want.scales != six.scales).any()
    with control_bits(bits):
        got = mx.quantize(x, "nvfp4", scale_rule=RULE, **options)
        made = reference.quantize(x, "nvfp4", scale_rule=RULE, **as_array)
    assert got.equals(want)
    assert np.array_equal(made.codes, want.codes)
    assert np.array_equal(made.scales, want.scales)
    assert made.tensor_scale.tobytes() == want.tensor_scale.tobytes()


@pytest.mark.parametrize("bits", [FLUSH_TO_ZERO, DENORMALS_ARE_ZERO, UPWARD], ids=hex)
def test_the_arithmetic_of_a_stack_is_refused(bits):
    # Regression: if subnormals were flushed or the rounding direction was not to nearest, the
    # arithmetic of a software stack gave wrong bits instead of an error.
    x = np.full((1, 16), 1e-41, np.float32)
    made = stacks.quantize(x, "vllm")
    for call in (
        lambda: stacks.quantize(x, "vllm"),
        lambda: stacks.dequantize(made, "vllm"),
        lambda: mx.fake_quantize(x, "nvfp4", arithmetic="vllm"),
    ):
        with control_bits(bits), pytest.raises(RuntimeError, match="vllm needs floats that round to nearest"):
            call()
