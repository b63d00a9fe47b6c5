"""Compare results of a GPU with results of the CPU, bit for bit.

Each comparison can run in its own process.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import mxnum as mx
from benchmarks import data
from mxnum import formats

SCALES = (0, 1, 90, 127, 128, 170, 253, 254)
#: An iterator of (count of numbers, description, result of the GPU, result of the CPU).
Pairs = Iterator[tuple[int, str, Any, Any]]


@dataclass(frozen=True)
class Comparison:
    """One cell of a table: a comparison of one kind, for one format."""

    kind: str
    format: str
    #: `count` is the number of random numbers for each combination of settings; `patterns` is the
    #: number of bit patterns in a sweep.
    count: int
    patterns: int
    seed: int

    def run(self) -> tuple[int, str]:
        """Return the count of compared numbers, and a description of differences ("" if none)."""
        compared = 0
        for count, what, got, want in KINDS[self.kind](self):
            if not _are_equal(got, want):
                return compared, f"{what} differs"
            compared += count
        return compared, ""


def comparisons(count: int, patterns: int, seed: int) -> Iterator[Comparison]:
    """Yield all comparisons; the comparisons that take longest come first."""
    for kind in KINDS:
        for name in formats.names():
            if kind == "random" or formats.get(name).scale.power_of_two:
                yield Comparison(kind, name, count, patterns, seed)


def to_gpu(array: Any) -> Any:
    """Return a device array of numba. Types of ml_dtypes are copied as integers."""
    from numba import cuda
    from numba.cuda.core import config

    if array.dtype.kind == "V" and not config.ENABLE_CUDASIM:
        return cuda.to_device(array.view(f"u{array.itemsize}")).view(array.dtype)
    return cuda.to_device(array)


def _are_equal(got: Any, want: Any) -> bool:
    if isinstance(want, mx.MXArray):
        return bool(got.to_host().equals(want))
    there = got.copy_to_host() if hasattr(got, "copy_to_host") else np.asarray(got)
    bits = f"u{want.itemsize}"
    return there.dtype == want.dtype and np.array_equal(there.view(bits), want.view(bits))


def _random(given: Comparison) -> Pairs:
    """Compare results for random numbers in blocks of similar magnitudes, with every rounding."""
    place = formats.names().index(given.format)
    powers = formats.get(given.format).scale.power_of_two
    layouts: tuple[dict[str, Any], ...] = ({}, {"axis": 0}, {"block_shape": (4, 8)}, {"block_size": 100})
    rules = list(mx.ScaleRule) if powers else ["nearest", "rceil"]
    overflows, dtypes = list(mx.Overflow), list(formats.FLOATS)
    for number, rounding in enumerate(mx.Rounding):
        turn, dtype = number + 3 * place, dtypes[(number + place) % 4]
        x = patterns(np.random.default_rng([given.seed, place, number]), dtype, data.shape(given.count))
        modes: dict[str, Any] = {
            "rounding": rounding,
            "scale_rule": rules[turn % len(rules)],
            "overflow": overflows[turn % 2],
            **layouts[turn % 3 if turn % 5 or not powers else 3],
        }
        if rounding == mx.Rounding.SR:
            modes |= {"seed": turn, "stream": 1 << 33, "sr_bits": 1 + turn % 30}
        if powers and turn % 7 == 3:
            modes["offset"] = "float16"
        yield from compared(x, given.format, modes)


def patterns(rng: np.random.Generator, dtype: str, shape: tuple[int, int]) -> Any:
    """Return rows of numbers with similar magnitudes, and random bit patterns among them.

    The random patterns include NaNs, infinities and subnormal numbers.
    """
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


def compared(x: Any, name: str, modes: dict[str, Any]) -> Pairs:
    """Compare results of quantize, fake_quantize and dequantize on the GPU and on the CPU."""
    there, x_there = dict(modes), to_gpu(x)
    if "scales" in modes:
        there["scales"] = to_gpu(modes["scales"])
    said = ", ".join(f"{key}={value}" for key, value in modes.items() if key != "scales") or "given scales"
    what = f"{x.dtype.name}, {said}"
    q, expected = mx.quantize(x_there, name, **there), mx.quantize(x, name, **modes)
    yield x.size, f"quantize: {what}", q, expected
    yield 0, f"fake_quantize: {what}", mx.fake_quantize(x_there, name, **there), mx.fake_quantize(x, name, **modes)
    yield 0, f"dequantize: {what}", q.dequantize(), expected.dequantize()


def _packed(given: Comparison) -> Pairs:
    """Compare packed codes, and transposes and slices of packed codes."""
    x = data.normal(given.count, given.seed)
    q, want = mx.quantize(to_gpu(x), given.format, packed=True), mx.quantize(x, given.format, packed=True)
    yield x.size, "packed=True", q, want
    yield 0, "pack", mx.quantize(to_gpu(x), given.format).pack(), mx.quantize(x, given.format).pack()
    yield 0, "a transpose of packed codes", q.T.dequantize(), want.T.dequantize()
    yield 0, "a slice of packed codes", q[1:].pack(), want[1:].pack()
    again = mx.MXArray.from_packed(q.pack(), q.scales, given.format, length=x.shape[-1])
    yield 0, "from_packed", again, mx.quantize(x, given.format)


def _products(given: Comparison) -> Pairs:
    """Compare products of operands in two formats, with sums by blocks and sequential sums."""
    names = formats.names("e8m0")
    other = names[(names.index(given.format) + 1) % len(names)]
    side = max(2, int((given.count // 64) ** 0.5))
    rng = np.random.default_rng([given.seed, side])
    a, b = (patterns(rng, "float32", (side, 96)) for _ in range(2))
    here = mx.quantize(a, given.format), mx.quantize(b.T, other, axis=0)
    there = mx.quantize(to_gpu(a), given.format), mx.quantize(to_gpu(b.T.copy()), other, axis=0)
    for accumulate in ("block", "sequential"):
        modes: dict[str, Any] = {"accumulate": accumulate}
        what = f"matmul with {other}, {accumulate}"
        yield side * side, what, mx.matmul(*there, **modes), mx.matmul(*here, **modes)


def _halves(given: Comparison) -> Pairs:
    """Compare results for every number of the 16-bit types, in contiguous and in strided blocks."""
    for dtype, nonfinite in (("bfloat16", "block"), ("float16", "block"), ("bfloat16", "element")):
        if nonfinite == "element" and given.format not in ("mxfp8_e4m3", "mxfp8_e5m2"):
            continue
        whole = np.arange(min(1 << 16, given.patterns), dtype=np.uint16).reshape(-1, 32)
        for order in (whole, whole.reshape(32, -1).T.copy()):
            x = order.view(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
            yield from compared(x, given.format, {"nonfinite": nonfinite})


def _sweep(given: Comparison) -> Pairs:
    """Compare results for every float32 bit pattern, in blocks with random codes of `SCALES`."""
    piece, step = min(given.patterns, 1 << 26), (1 << 32) // given.patterns
    for first in range(0, given.patterns, piece):
        bits = np.arange(piece, dtype=np.uint32) * np.uint32(step) + np.uint32(first * step)
        scales = np.resize(np.array(SCALES, np.uint8), piece // 32)
        np.random.default_rng(first).shuffle(scales)
        yield from compared(bits.view(np.float32), given.format, {"scales": scales})


KINDS: dict[str, Callable[[Comparison], Pairs]] = {
    "every float32": _sweep, "random": _random, "products": _products, "packed": _packed,
    "every 16-bit number": _halves,
}  # fmt: skip


# Libraries


@dataclass(frozen=True)
class Library:
    """A library's array type, its functions that copy arrays to a GPU and back, and its streams."""

    kind: type
    there: Callable[[Any, Any], Any]
    back: Callable[[Any], Any]
    stream: Callable[[], AbstractContextManager[Any]]


def _numba() -> Library:
    from numba import cuda
    from numba.cuda.core import config

    return Library(
        type(cuda.to_device(np.zeros(1))),
        lambda x, stream: cuda.to_device(x, stream=stream or 0),
        lambda x: x.copy_to_host(),
        nullcontext if config.ENABLE_CUDASIM else lambda: cuda.stream().auto_synchronize(),
    )


def _cupy() -> Library:
    import cupy

    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as problem:
        raise ImportError(f"CuPy sees no GPU ({problem})") from None
    return Library(
        cupy.ndarray, lambda x, _: cupy.asarray(x), cupy.asnumpy, lambda: cupy.cuda.Stream(non_blocking=True)
    )


def _torch() -> Library:
    import torch

    if not torch.cuda.is_available():
        raise ImportError("PyTorch sees no GPU")

    def stream() -> AbstractContextManager[Any]:
        made: AbstractContextManager[Any] = torch.cuda.stream(torch.cuda.Stream())
        return made

    return Library(torch.Tensor, lambda x, _: torch.from_numpy(x).cuda(), lambda x: x.cpu().numpy(), stream)


LIBRARIES: dict[str, tuple[str, Callable[[], Library]]] = {
    "numba": ("numba_cuda", _numba), "CuPy": ("cupy", _cupy), "PyTorch": ("torch", _torch),
}  # fmt: skip


def of_library(name: str, on_stream: bool, count: int, seed: int) -> tuple[int, str]:
    """Compare results on a GPU library's arrays with results of the CPU.

    Like `Comparison.run`, return the count of compared numbers and a description of differences.
    Raise ImportError if the library is not installed or finds no GPU.
    """
    package, make = LIBRARIES[name]
    if importlib.util.find_spec(package) is None:
        raise ImportError(f"{name} is not installed")
    library = make()
    x = data.normal(count, seed)
    with library.stream() if on_stream else nullcontext() as stream:
        given = library.there(x, stream)
        q = mx.quantize(given, "mxint4", offset="float16")
        results = (
            ("codes", q.codes), ("scales", q.scales), ("offsets", q.offsets), ("dequantize", q.dequantize()),
            ("fake_quantize", mx.fake_quantize(given, "mxfp4_e2m1", rounding="sr", seed=seed, axis=0)),
        )  # fmt: skip
        found = [(what, result, library.back(result)) for what, result in results]
    want = mx.quantize(x, "mxint4", offset="float16")
    stochastic = mx.fake_quantize(x, "mxfp4_e2m1", rounding="sr", seed=seed, axis=0)
    expected = (want.codes, want.scales, want.offsets, want.dequantize(), stochastic)
    for (what, result, got), right in zip(found, expected, strict=True):
        if not isinstance(result, library.kind):
            return 0, f"{what} is a {type(result).__name__}"
        if not _are_equal(got, np.asarray(right)):
            return 0, f"{what} differs"
    return x.size, ""
