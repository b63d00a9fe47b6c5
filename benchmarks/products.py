"""Time matrix products with each `accumulate=`, and a linear layer, against float32 BLAS."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import llvmlite.binding
import numpy as np

import mxnum as mx
from benchmarks.data import OCP, Array, one_thread
from benchmarks.questions import Case, Cells, Session
from benchmarks.record import Table

TITLE = "What does a defined accumulation cost?"
TEXT = """The baseline is numpy's float32 product of matrices of the same shapes on one thread. The operands are
quantized beforehand, unless a row says otherwise. `exact` has no goal, and is measured on smaller matrices, beside
float32 products of the same size."""

#: Goals of `accumulate="block"` at 1024 × 1024 × 1024, on processors with VNNI, AVX2 or neither.
#: A goal is a multiple of the time of float32 BLAS, and comes from counting instructions. With
#: VNNI, adding 32 products to each of 16 sums takes 12 instructions; in float32 it takes 32.
#: Packing adds a twentieth. The goal of E4M3 is in `_block_goals`. E4M3 takes 2.0 times as long as
#: float32, because E4M3 is summed in float64, and a vector holds half as many float64 numbers. The
#: end of each block takes four more instructions for eight sums, or 0.2 of the time of float32.
#: E5M2 has no goal.
BLOCK_GOALS = {
    "vnni": {"mxfp4_e2m1": 0.5, "mxint4": 0.5, "mxint8": 0.5, "mxfp6_e2m3": 0.5, "mxfp6_e3m2": 0.8, "nvfp4": 0.8},
    "avx2": {"mxfp4_e2m1": 0.9, "mxint4": 0.9, "mxint8": 1.2, "mxfp6_e2m3": 1.2, "mxfp6_e3m2": 1.2, "nvfp4": 1.3},
    "": {"mxfp4_e2m1": 1.1, "mxint4": 1.1, "mxint8": 1.1, "mxfp6_e2m3": 1.1, "mxfp6_e3m2": 1.1},
}
#: `sequential` executes one instruction more than BLAS for each packed element, which takes 3 %
#: more time at 1024 × 1024 × 1024. Another 1.5 % is needed to find NaN, and to move float32
#: numbers, which are four times as large as codes.
GOALS = {"sequential": 1.1, "blas": 1.02}


def measure(session: Session) -> Cells:
    """Yield the cells for products of matrices, products of vectors, and a linear layer."""
    one_thread()
    edge, small = (256, 64) if session.quick else (1024, 192)
    yield from _matrices(edge, ("block", "sequential", "blas"), session)
    yield from _matrices(small, ("exact",), session)
    yield from _units(edge, session)
    yield from _shapes(session)
    yield from _vectors(1 << (16 if session.quick else 20), session)
    yield from _layer(edge, session)


def _pairs(quick: bool) -> tuple[tuple[str, str | None], ...]:
    """Return pairs of formats of the two operands; None means float32."""
    same = tuple((name, name) for name in (*OCP, "mxint4", "nvfp4"))
    mixed = (("mxfp8_e4m3", "mxfp4_e2m1"), ("mxfp8_e5m2", "mxfp8_e4m3"), ("mxfp8_e4m3", None))
    return (same[0], same[4], mixed[0]) if quick else same + mixed


def _block_goals() -> dict[str, float]:
    """Return a mapping from formats to the goals of `accumulate="block"` on this processor."""
    features = llvmlite.binding.get_host_cpu_features()
    has_vnni = features.get("avx512vnni") or features.get("avxvnni")
    return {"mxfp8_e4m3": 2.3, **BLOCK_GOALS["vnni" if has_vnni else "avx2" if features.get("avx2") else ""]}


def _matrices(edge: int, modes: tuple[str, ...], session: Session) -> Cells:
    rng = np.random.default_rng(session.seed)
    a, b = (rng.standard_normal((edge, edge), dtype=np.float32) for _ in range(2))
    out = np.empty_like(a)
    sgemm = partial(np.matmul, a, b, out)
    cube = f"{edge} × {edge} × {edge}"
    table = Table(f"matmul_{edge}", f"matmul, {cube}", "× float32 BLAS")
    for left, right in _pairs(session.quick):
        qa = mx.quantize(a, left)
        qb: Any = b if right is None else mx.quantize(b, right, axis=0)
        for mode in modes:
            if mode == "block" and right is None:
                continue
            goal = _block_goals().get(left) if mode == "block" and left == right else GOALS.get(mode)
            run = partial(mx.matmul, qa, qb, accumulate=mode)
            case = Case(f"{left} · {right or 'float32'}", mode, run, limit=goal if edge == 1024 else None)
            yield from session.compare(table, sgemm, case)
    if "blas" not in modes:
        return
    table = Table(f"emulated_{edge}", f"fake_quantize both operands, then float32 BLAS, {cube}", "× float32 BLAS")
    fa, fb = np.empty_like(a), np.empty_like(b)
    for left, right in _pairs(session.quick):
        if right is not None:

            def emulate(left: str = left, right: str = right) -> None:
                mx.fake_quantize(a, left, out=fa)
                mx.fake_quantize(b, right, axis=0, out=fb)
                np.matmul(fa, fb, out)

            case = Case(f"{left} · {right}", "total", emulate, limit=1.02 if edge == 1024 else None)
            yield from session.compare(table, sgemm, case)

    def copy() -> None:
        np.copyto(fa, a)
        np.copyto(fb, b)
        np.matmul(fa, fb, out)

    yield from session.compare(table, sgemm, Case("np.copyto of both instead", "total", copy))


#: Matrix units, the type or format of their operands, and their goals at 1024 × 1024 × 1024.
UNITS = (
    ("hopper_fp8", "float8_e4m3fn", 15.0),
    ("hopper_fp8", "float8_e5m2", 15.0),
    ("hopper_fp8_promoted", "float8_e4m3fn", 15.0),
    ("hopper_float16", "float16", 15.0),
    ("hopper_bfloat16", "bfloat16", 15.0),
    ("blackwell_mxfp8", "mxfp8_e4m3", 15.0),
    ("blackwell_mxfp8", "mxfp6_e3m2", 15.0),
    ("blackwell_mxfp8", "mxfp4_e2m1", 15.0),
    ("blackwell_nvfp4", "nvfp4", 3.0),
    ("blackwell_nvfp4", "mxfp4_e2m1", 3.0),
)


def _units(edge: int, session: Session) -> Cells:
    import ml_dtypes

    rng = np.random.default_rng(session.seed)
    a, b = (rng.standard_normal((edge, edge), dtype=np.float32) for _ in range(2))
    sgemm = partial(np.matmul, a, b, np.empty_like(a))
    table = Table(f"units_{edge}", f"matmul with the sums of matrix units, {edge} × {edge} × {edge}", "× float32 BLAS")
    for unit, kind, goal in UNITS[::3] if session.quick else UNITS:
        if kind.startswith(("mx", "nv")):
            operands: Any = mx.quantize(a, kind), mx.quantize(b, kind, axis=0)
        else:
            dtype = np.dtype("float16") if kind == "float16" else np.dtype(getattr(ml_dtypes, kind))
            operands = a.astype(dtype), b.astype(dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mx.units.EvidenceWarning)
            run, limit = partial(mx.matmul, *operands, accumulate=unit), goal if edge == 1024 else None
            case = Case(f"{unit}, {kind}", "total", run, limit=limit)
            yield from session.compare(table, sgemm, case)


#: Shapes of operands: lengths that do not fill tiles, few rows, long sums, and batches.
SHAPES = (
    ((1000, 1013), (1013, 999)),
    ((1, 1024), (1024, 1024)),
    ((33, 1024), (1024, 1024)),
    ((64, 16384), (16384, 64)),
    ((16, 128, 512), (16, 512, 128)),
    ((16, 128, 512), (512, 128)),
)


def _shapes(session: Session) -> Cells:
    rng = np.random.default_rng(session.seed)
    table = Table("shapes", "matmul, other shapes", "× float32 BLAS")
    for left, right in SHAPES[1:3] if session.quick else SHAPES:
        a, b = rng.standard_normal(left, dtype=np.float32), rng.standard_normal(right, dtype=np.float32)
        for name in ("mxfp8_e4m3", "mxfp4_e2m1"):
            qa, qb = mx.quantize(a, name), mx.quantize(b, name, axis=-2)
            for mode in ("block", "sequential"):
                case = Case(f"{left} · {right}", f"{mode}, {name}", partial(mx.matmul, qa, qb, accumulate=mode))
                yield from session.compare(table, partial(np.matmul, a, b), case)


def _vectors(length: int, session: Session) -> Cells:
    rng = np.random.default_rng(session.seed)
    a, b = (rng.standard_normal(length, dtype=np.float32) for _ in range(2))
    table = Table("dot", f"dot, {length:,} elements", "× float32 BLAS")
    for left, right in _pairs(session.quick):
        qa, qb = mx.quantize(a, left), b if right is None else mx.quantize(b, right)
        for mode in ("block", "sequential", "exact", "blas"):
            if not (mode == "block" and right is None):
                run = partial(mx.dot, qa, qb, accumulate=mode)
                yield from session.compare(
                    table, partial(np.dot, a, b), Case(f"{left} · {right or 'float32'}", mode, run)
                )


def _layer(edge: int, session: Session) -> Cells:
    rng = np.random.default_rng(session.seed)
    x, w, g = (rng.standard_normal((edge, edge), dtype=np.float32) for _ in range(3))
    out = np.empty_like(x)

    def three_products() -> None:
        np.matmul(x, w.T, out)
        np.matmul(g, w, out)
        np.matmul(g.T, x, out)

    title = f"A linear layer, forward and backward, {edge} samples, {edge} inputs, {edge} outputs"
    table = Table("linear", title, "× its three products in float32 BLAS")
    for name in OCP[:1] + OCP[4:5] if session.quick else OCP:
        kinds = {"quantize": mx.quantize, "fake_quantize": mx.fake_quantize}
        for row, function in kinds.items():
            run = partial(_six_quantizations, function, (x, w, g), name)
            case = Case(f"the six quantizations alone, {row}", name, run, limit=0.05 if edge == 1024 else None)
            yield from session.compare(table, three_products, case)
        for mode in ("block", "sequential", "blas"):
            run = partial(_both_ways, x, w, g, name, mode)
            yield from session.compare(table, three_products, Case(f"forward and backward, {mode}", name, run))


def _six_quantizations(function: Any, arrays: tuple[Array, ...], name: str) -> None:
    """Quantize each operand along both axes, because the products sum along different axes."""
    for array in arrays:
        function(array, name, axis=1)
        function(array, name, axis=0)


def _both_ways(x: Array, w: Array, g: Array, name: str, mode: str) -> None:
    _, context = mx.linear_forward(x, w, activations=name, weights=name, accumulate=mode)
    mx.linear_backward(g, context, gradients=name)
