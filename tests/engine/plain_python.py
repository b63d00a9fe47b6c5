"""Compare the engine's loops, run as plain Python, with the reference.

`test_plain_python` runs this module with NUMBA_DISABLE_JIT=1. Nothing is compiled, so a case takes
only milliseconds. The cases contain, for any two parameters, every pair of their values.
"""

from __future__ import annotations

import numpy as np

import mxnum as mx
from mxnum import reference
from mxnum.formats import FLOATS
from mxnum.memory.dtypes import numpy_dtype
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule
from tests import samples
from tests.covering import covering

DTYPES = {name: numpy_dtype(fmt) for name, fmt in FLOATS.items()}
CASES = covering(
    fmt=mx.formats.names("e8m0"), dtype=DTYPES, rounding=Rounding, rule=ScaleRule, overflow=Overflow,
    layout=[{}, {"axis": 0}, {"block_size": 16}, {"block_shape": (2, 4)}, {"blocks": (3, 7)}], packed=[False, True],
    nonfinite=[Nonfinite.BLOCK, Nonfinite.ELEMENT], offset_range=[None, "exact", "half"],
)  # fmt: skip


def numbers(dtype, key):
    """Return rows of different magnitudes with ties, zeros, subnormals, infinities and NaN."""
    rng = samples.generator("plain", dtype, key)
    with np.errstate(all="ignore"):
        x = (rng.standard_normal((3, 40)) * np.exp2([[-20], [0], [9]])).astype(DTYPES[dtype])
    x[1, 8:16] = np.arange(8) / 8
    x[0, 3], x[1, 5], x[2, 0], x[2, 7] = np.inf, np.nan, -0.0, FLOATS[dtype].value(3)
    return x


def bytes_of(codes, bits):
    """Pack the codes of each row into a little-endian bit stream, and join the streams."""
    rows = codes.reshape(-1, codes.shape[-1]).tolist()
    streams = (sum(code << (bits * i) for i, code in enumerate(row)) for row in rows)
    length = -(-codes.shape[-1] * bits // 8)
    return b"".join(stream.to_bytes(length, "little") for stream in streams)


def check(fmt, dtype, rounding, rule, overflow, layout, packed, nonfinite, offset_range):
    """Check codes, packed bytes, scales, offsets, and dequantized values of two float types."""
    told, element = locals().copy(), mx.formats.get(fmt).element
    values = [*DTYPES][[*ScaleRule].index(rule) % len(DTYPES)]
    x = numbers(dtype, fmt)
    if nonfinite == Nonfinite.ELEMENT and element.nan_code is None:
        x = np.where(np.isnan(x), x.dtype.type(1), x)
    options = {"rounding": rounding, "scale_rule": rule, "overflow": overflow, "nonfinite": nonfinite}
    if offset_range is not None:
        options |= {"offset": "float16", "offset_range": offset_range}
    drawn, words = {}, {}
    if rounding == Rounding.SR:
        words = {"random_bits": reference.random_words(x.shape, seed=9)}
        drawn = {"seed": 9} if overflow == Overflow.SATURATE else words
    q = mx.quantize(x, fmt, packed=packed, **layout, **options, **drawn)
    want = reference.quantize(x, fmt, blocks=q.blocks, **options, **words)
    assert np.array_equal(q.scales, want.scales), told
    assert np.array_equal(q.codes, want.codes), told
    assert q.pack().tobytes() == bytes_of(want.codes, element.bits), told
    assert q.T.pack().tobytes() == bytes_of(want.codes.T, element.bits), told
    if offset_range is not None:
        assert q.offsets.tobytes() == want.offsets.tobytes(), told
    kept = {"blocks": q.blocks, "offsets": want.offsets}
    for got, result in (
        (q.dequantize(values), values),
        (mx.fake_quantize(x, fmt, **layout, **options, **drawn), dtype),
    ):
        right = reference.dequantize(want.codes, want.scales, fmt, dtype=result, **kept)
        assert got.dtype == DTYPES[result], told
        assert got.tobytes() == right.tobytes(), told


def check_all():
    """Check all cases, and print their number."""
    for case in CASES:
        check(**case)
    print(f"{len(CASES)} cases are the same")
