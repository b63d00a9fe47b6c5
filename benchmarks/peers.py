"""Compare mxnum with other libraries: times and values of conversions to MX and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np

import mxnum as mx
from benchmarks import emulation
from benchmarks.data import Array, normal, one_thread, size_name
from benchmarks.questions import Case, Cells, Session
from benchmarks.record import Measurement, Table

TITLE = "How fast are other libraries, and do they agree?"
TEXT = """Conversions from float32 to MX values and back, blocks of 32 along rows, floor scales, one thread. The
baseline is `np.copyto`. Each library is used as its documentation shows, eagerly (no `torch.compile`). *numpy scale*:
the library only rounds elements, so numpy computes the scale from the exponent bits of each block's largest magnitude.
*Emulation in torch* was written for this comparison. It follows the algorithm that was published with the microxcaling
library, in as few passes as the algorithm needs; microxcaling itself is not measured. The rounding `nearest` of the
emulation rounds ties away from zero. A library that rounds one block at a time rounds only a small part of the array;
its time is compared per element.

*Other values* counts the elements whose bits differ from mxnum's (all NaN count as equal). All libraries should agree
on normally distributed data. The other data sets are cases in which emulators are known to differ: ties, the ends of
the exponent range, signs of zero, NaN and infinity, and maxima just below a power of two. The float logarithm of such
a maximum equals that of the power of two. A difference is not in itself an error: rounding ties away from zero is
another mode, and the standard leaves open what becomes of NaN."""

ELEMENTS = {"mxfp8_e4m3": "float8_e4m3fn", "mxfp4_e2m1": "float4_e2m1fn"}

#: The number of elements whose values are compared.
SAMPLE = 1 << 16

Run = Callable[[Array], Any]


def measure(session: Session) -> Cells:
    """Yield the cells with times, then the cells with counts of differing values."""
    one_thread()
    peers = {name: dict(_peers(name)) for name in ELEMENTS}
    for size in session.sizes_or((1 << 24,), (1 << 18,)):
        x = normal(size, session.seed)
        copy = partial(np.copyto, np.empty_like(x), x)
        table = Table(f"time_{size}", f"There and back, {size_name(size)} elements", "× np.copyto of the float32 array")
        for name, of_format in peers.items():
            for row, (run, missing, part) in of_format.items():
                rows = max(1, len(x) // part)
                case = Case(row, name, None if missing else partial(run, x[:rows]), rows / len(x), skipped=missing)
                yield from session.compare(table, copy, case)
    yield from _agreement(peers, session)


def _agreement(peers: dict[str, dict[str, tuple[Run, str, int]]], session: Session) -> Cells:
    for name, of_format in peers.items():
        table = Table(
            f"values_{name}", f"Other values, {name}", f"elements, out of {SAMPLE:,}, that differ from mxnum's", "none"
        )
        for what, x in _samples(session.seed):
            expected = _bits(mx.fake_quantize(x, name))
            for row, (run, missing, part) in of_format.items():
                if missing or part > 1 or row.startswith("mxnum"):
                    continue
                try:
                    with np.errstate(all="ignore"):
                        found = _bits(np.asarray(run(x), np.float32).reshape(x.shape))
                except Exception as error:
                    yield table, Measurement(row, what, text=f"refused ({type(error).__name__})")
                    continue
                count = float(np.count_nonzero(found != expected))
                yield table, Measurement(row, what, count, count, count, 1)


def _bits(x: Array) -> Array:
    return np.where(np.isnan(x), np.float32(np.nan), x).view(np.uint32)


def _samples(seed: int) -> Iterator[tuple[str, Array]]:
    """Yield the name and the numbers of each data set.

    Emulators are known to agree on the first data set, and to differ on the others.
    """
    rng = np.random.default_rng(seed)
    x = normal(SAMPLE, seed).reshape(-1, 32)
    yield "normal data", x
    yield "ties", (rng.integers(-128, 129, x.shape) / 16).astype(np.float32)
    below = x / 8
    below[:, 7] = np.nextafter(np.exp2(rng.integers(-100, 100, len(x))).astype(np.float32), np.float32(0))
    below[:, :7] = below[:, 7:8] * below[:, :7]
    below[:, 8:] = below[:, 7:8] * below[:, 8:]
    yield "maxima below a power of two", np.clip(below, -below[:, 7:8], below[:, 7:8])
    yield "near the least number", x * np.float32(2.0**-125)
    yield "near the greatest number", np.clip(x, -3.9, 3.9) * np.float32(2.0**126)
    yield "zeros of both signs", np.copysign(np.float32(0), x)
    nan = x.copy()
    nan[::2, 3] = np.nan
    nan[1::2, 3] = np.inf
    yield "a NaN or infinity in a block", nan


def _peers(name: str) -> Iterator[tuple[str, tuple[Run, str, int]]]:
    """Yield (name, (function, reason, divisor)) for each row of the table.

    The reason says why the row is skipped; a row with an empty reason is measured. If the divisor
    is n, the function quantizes only 1 / n of the array.
    """
    torch = _missing("torch")
    yield "mxnum, fake_quantize", (lambda x: mx.fake_quantize(x, name), "", 1)
    yield "mxnum, quantize and dequantize", (lambda x: mx.quantize(x, name).dequantize(), "", 1)
    yield "ml_dtypes cast, numpy scale", (partial(_ml_dtypes, name), "", 1)
    gfloat = _missing("gfloat")
    yield "gfloat round_ndarray, numpy scale", (partial(_gfloat_array, name), gfloat, 1)
    yield "gfloat quantize_block", (partial(_gfloat_blocks, name), gfloat, 4096)
    yield "torchao to_mx and to_dtype", (partial(_torchao, name), torch or _missing("torchao"), 1)
    for rounding in ("nearest", "even"):
        run = partial(_emulated, name, rounding)
        yield f"emulation in torch, {rounding}", (run, torch, 1)


def _missing(package: str) -> str:
    return "" if find_spec(package) else f"{package} is not installed"


def _scales(x: Array, name: str) -> tuple[Array, Array]:
    """Return the array in blocks of 32, and each block's scale by the floor rule."""
    blocks = x.reshape(-1, 32)
    _, exponent = np.frexp(np.abs(blocks).max(axis=1, keepdims=True))
    emax = mx.formats.get(name).element.emax
    return blocks, np.ldexp(np.float32(1), np.clip(exponent - 1 - emax, -127, 127))


def _ml_dtypes(name: str, x: Array) -> Array:
    blocks, scale = _scales(x, name)
    largest = np.float32(mx.formats.get(name).element.max)
    codes = np.clip(blocks / scale, -largest, largest).astype(getattr(ml_dtypes, ELEMENTS[name]))
    return (codes.astype(np.float32) * scale).reshape(x.shape)


def _gfloat_array(name: str, x: Array) -> Array:
    import gfloat
    from gfloat import formats

    element = getattr(formats, f"format_info_ocp_{mx.formats.get(name).element.name}")
    blocks, scale = _scales(x, name)
    rounded: Array = gfloat.round_ndarray(element, blocks / scale, sat=True)
    return (rounded * scale).reshape(x.shape)


def _gfloat_blocks(name: str, x: Array) -> Array:
    import gfloat
    from gfloat import formats

    fmt = getattr(formats, f"format_info_{name}")
    blocks = [gfloat.quantize_block(fmt, block, gfloat.compute_scale_amax) for block in x.reshape(-1, 32)]
    return np.concatenate(blocks)


def _torchao(name: str, x: Array) -> Any:
    import torch
    from torchao.prototype.mx_formats.mx_tensor import to_dtype, to_mx

    torch.set_num_threads(1)
    element = torch.float8_e4m3fn if name == "mxfp8_e4m3" else torch.float4_e2m1fn_x2
    scales, codes = to_mx(torch.from_numpy(x), element, 32)
    return to_dtype(codes, scales, element, 32, torch.float32)


def _emulated(name: str, rounding: str, x: Array) -> Any:
    import torch

    torch.set_num_threads(1)
    return emulation.fake_quantize(torch.from_numpy(x), mx.formats.get(name).element, rounding)
