"""On a GPU: the same bits as the CPU, and each kernel beside the device's own copy."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

import mxnum as mx
from benchmarks import data
from benchmarks.questions import Case, Cells, Session
from benchmarks.record import Measurement, Table
from mxnum import formats

TITLE = "On a GPU: the same bits, and how close to a copy?"
TEXT = """First the bits: what kernels make is compared with what the CPU makes, for random numbers in every format and
rounding, with types, scale rules, overflows and layouts in turn, and for every float32 bit pattern under eight scales.
Then the speed: times are multiples of the device's own copy, counting bytes. 1.00 is a kernel that reads and writes as
fast as a copy does; the goal of 85 % of its bandwidth is 1.18. Ten calls are queued for each measurement."""

DEVICE = Table("device", "The device", "", plot="none")
EQUALITY = Table("equality", "Elements compared with the CPU, all equal", "elements", plot="none")
SPEED = Table("speed", "Time per byte, in multiples of the device's copy", "the device's copy")

#: The goal: 85 % of the bandwidth of a copy.
LIMIT = 1 / 0.85
CALLS = 10
#: Bytes that a copy of float32 moves for each element.
COPIED = 8.0
SCALES = (0, 1, 90, 127, 128, 170, 253, 254)


def require() -> None:
    """RuntimeError in one sentence unless there is a GPU, or numba's simulator, to ask."""
    if importlib.util.find_spec("numba_cuda") is None:
        raise RuntimeError("the question 'cuda' needs numba-cuda, which comes with: pip install -e \".[cuda]\"")
    from numba import cuda

    if not cuda.is_available():
        raise RuntimeError("the question 'cuda' needs a GPU that numba-cuda can use, and finds none")


def measure(session: Session) -> Cells:
    """What the device is, whether its bits are right, and how fast it is."""
    require()
    yield from _device()
    yield from _equality(session)
    yield from _speed(session)


def _device() -> Cells:
    from numba import cuda
    from numba.cuda.core import config

    found = {"name": "numba's simulator"}
    if not config.ENABLE_CUDASIM:
        device = cuda.get_current_device()
        found = {
            "name": device.name.decode() if isinstance(device.name, bytes) else str(device.name),
            "compute capability": ".".join(map(str, device.compute_capability)),
            "multiprocessors": str(device.MULTIPROCESSOR_COUNT),
            "CUDA runtime": ".".join(map(str, cuda.runtime.get_version())),
        }
    for row, text in found.items():
        yield DEVICE, Measurement(row, "device", text=text)


# Equality


def _equality(session: Session) -> Cells:
    count = 1 << 12 if session.quick else 1 << 22
    whole = 1 << 14 if session.quick else 1 << 32
    if session.sizes:
        count, whole = min(session.sizes), 2 * min(session.sizes)
    for name in formats.names("e8m0"):
        for column, comparisons in (
            ("random patterns", _random(name, count, session)),
            ("every float32", _all(name, whole)),
        ):
            compared, wrong = 0, ""
            for size, difference in comparisons:
                compared += size
                wrong = wrong or difference
                if wrong:
                    break
            yield EQUALITY, Measurement(name, column, text=f"{compared:,}" if not wrong else "", failed=wrong)


#: How many elements were compared, and what was different, in words.
Compared = Iterator[tuple[int, str]]


def _random(name: str, count: int, session: Session) -> Compared:
    """Random bit patterns, in blocks of like magnitude, under every rounding, type and layout in turn."""
    rng = np.random.default_rng(session.seed)
    layouts: tuple[dict[str, Any], ...] = ({}, {"axis": 0}, {"block_shape": (4, 8)}, {"block_size": 100})
    rules, overflows = list(mx.ScaleRule), list(mx.Overflow)
    dtypes, place = list(formats.FLOATS), list(formats.names("e8m0")).index(name)
    for number, rounding in enumerate(mx.Rounding):
        turn, dtype = number + 3 * place, dtypes[(number + place) % 4]
        x = _patterns(rng, dtype, data.shape(count))
        modes: dict[str, Any] = {
            "rounding": rounding,
            "scale_rule": rules[turn % 4],
            "overflow": overflows[turn % 2],
            **layouts[turn % 3 if turn % 5 else 3],
        }
        if rounding == mx.Rounding.SR:
            modes |= {"seed": turn, "stream": 1 << 33, "sr_bits": 1 + turn % 30}
        if turn % 7 == 3:
            modes["offset"] = "float16"
        yield from _compare(x, name, modes)


def _patterns(rng: np.random.Generator, dtype: str, shape: tuple[int, int]) -> Any:
    """Numbers of neighbouring magnitudes in each row, and anywhere a NaN, an infinity, a subnormal."""
    fmt = formats.FLOATS[dtype]
    as_dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    spread = (1 << (fmt.exponent_bits - 1)) - 2
    with np.errstate(all="ignore"):
        x = rng.standard_normal(shape) * np.exp2(rng.integers(-spread, spread, (shape[0], 1)))
        x = np.ascontiguousarray((x * np.exp2(rng.integers(-14, 1, shape))).astype(as_dtype))
    odd = rng.integers(0, x.size, max(1, x.size // 2000))
    kind = f"u{x.itemsize}"
    x.reshape(-1).view(kind)[odd] = rng.integers(0, 1 << 16, odd.size, dtype=np.uint16).astype(kind) << (fmt.bits - 16)
    return x


def _all(name: str, whole: int) -> Compared:
    """Every float32 bit pattern, block by block under another scale."""
    piece = min(whole, 1 << 26)
    for first in range(0, whole, piece):
        step = (1 << 32) // whole
        patterns = (np.arange(first, first + piece, dtype=np.uint64) * step).astype(np.uint32)
        x = patterns.view(np.float32)
        scales = np.resize(np.array(SCALES, np.uint8), x.size // 32)
        np.random.default_rng(first).shuffle(scales)
        yield from _compare(x, name, {"scales": scales})


def _compare(x: Any, name: str, modes: dict[str, Any]) -> Compared:
    from numba import cuda

    there = dict(modes)
    if "scales" in modes:
        there["scales"] = cuda.to_device(modes["scales"])
    on_gpu = cuda.to_device(x)
    said = ", ".join(f"{key}={value}" for key, value in modes.items() if key != "scales")
    what = f"{x.dtype.name}, {said or 'given scales'}"
    q, expected = mx.quantize(on_gpu, name, **there), mx.quantize(x, name, **modes)
    if not q.to_host().equals(expected):
        yield 0, f"quantize differs: {what}"
    results: tuple[tuple[str, Any, Any], ...] = (
        ("dequantize", q.dequantize(), expected.dequantize()),
        ("fake_quantize", mx.fake_quantize(on_gpu, name, **there), mx.fake_quantize(x, name, **modes)),
    )
    for label, got, want in results:
        bits = f"u{want.itemsize}"
        if not np.array_equal(got.copy_to_host().view(bits), want.view(bits)):
            yield 0, f"{label} differs: {what}"
    yield x.size, ""


# Speed


def _speed(session: Session) -> Cells:
    from numba import cuda

    for size in session.sizes_or((1 << 28, 1 << 29), (1 << 20,)):
        x = cuda.to_device(data.normal(size, session.seed))
        out = cuda.device_array(x.shape, np.float32)
        copy = _queued(partial(out.copy_to_device, x))
        for row, moved, limit, call in _calls(x, out):
            case = Case(row, data.size_name(size), _queued(call), share=moved / COPIED, limit=limit)
            yield from session.compare(SPEED, copy, case)


def _queued(call: Callable[[], object]) -> Callable[[], object]:
    """Several calls, then a wait."""
    from numba import cuda

    def run() -> None:
        for _ in range(CALLS):
            call()
        cuda.synchronize()

    return run


def _calls(x: Any, out: Any) -> Iterator[tuple[str, float, float | None, Callable[[], object]]]:
    """(what, bytes moved for each element, goal, call)."""
    codes = 5 + 1 / 32
    for fmt in ("mxfp8_e4m3", "mxfp4_e2m1", "mxint8"):
        yield f"fake_quantize {fmt}", COPIED, LIMIT, partial(mx.fake_quantize, x, fmt, out=out)
        yield f"quantize {fmt}", codes, LIMIT, partial(mx.quantize, x, fmt)
        yield f"dequantize {fmt}", codes, None, partial(mx.quantize(x, fmt).dequantize, out=out)
    fake = partial(mx.fake_quantize, x, "mxfp8_e4m3", out=out)
    yield "fake_quantize mxfp8_e4m3, rtz", COPIED, None, partial(fake, rounding="rtz")
    yield "fake_quantize mxfp8_e4m3, sr by seed", COPIED, None, partial(fake, rounding="sr", seed=1)
    yield "fake_quantize mxfp8_e4m3, columns", COPIED + 4, None, partial(fake, axis=0)
    yield "pack mxfp4_e2m1", 1.5, None, mx.quantize(x, "mxfp4_e2m1").pack
