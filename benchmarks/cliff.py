"""Time uncommon settings as multiples of the common case, to find outliers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

import mxnum as mx
from benchmarks.data import FEW, OCP, Array, normal, one_thread, size_name
from benchmarks.questions import Case, Cells, Session
from benchmarks.record import Measurement, Table

TITLE = "Is any combination of settings much slower than the common case?"
TEXT = """The common case is float32 input, blocks of 32 along contiguous rows, rounding to nearest even, floor scales
and saturation. Each row changes one setting of the common case, or a few settings drawn at random. Each number is a
time divided by the time of a baseline: the common case of the same function and format, on the same number of
elements. For a format that is not in OCP MX, the baseline is a similar OCP format, such as MXINT8 for MXINT4. A row
such as *bfloat16* is compared with float32, and a row such as *bfloat16, rtz* with the common case in bfloat16.
Frequent settings have rows of their own. All other settings use a general code path. One row for each function
summarizes the other settings; the slowest of them should take at most 15 times as long as the common case. One
thread."""

Function = Callable[[], object]

LIMIT = 15.0
DRAWN = 30

#: The frequent settings, each of which has its own row in the tables.
COMMON = {
    *(f"rounding {rounding}" for rounding in ("rna", "rtz", "rtp", "rtn", "rto", "sr, seed=", "sr, random_bits=")),
    *(f"scale_rule {rule}" for rule in ("ceil", "even", "rceil")),
    *(f"block_size {size}" for size in (16, 64, 128)),
    *("blocks along columns", "blocks along columns, rtz", "tiles 32 × 32", "tiles 128 × 128"),
    *("Fortran order", "Fortran order, blocks along columns"),
    *("bfloat16", "bfloat16, rtz", "bfloat16, sr, seed=", "bfloat16, blocks along columns"),
    *("to bfloat16", "blocks along columns, to bfloat16", "encode", "decode", "shared_scale"),
}

E3M4 = mx.MXFormat(mx.ElementFormat("e3m4", exponent_bits=3, mantissa_bits=4, bias=3), block=16, name="user e3m4 x 16")
E2M2 = mx.MXFormat(mx.ElementFormat("e2m2", exponent_bits=2, mantissa_bits=2, bias=1), block=32, name="user e2m2 x 32")
INT6 = mx.MXFormat(mx.formats.element("int6:"), block=64, name="user int6 x 64")

#: Formats that are not in OCP MX, each with the OCP format that is its baseline.
OTHERS: dict[str | mx.MXFormat, str] = {
    "mxfp4_e3m0": "mxfp4_e2m1",
    "mxint4": "mxint8",
    E3M4: "mxfp8_e4m3",
    E2M2: "mxfp6_e2m3",
    INT6: "mxint8",
}

#: No OCP format has codes of `WIDTHS` bits. Packed codes of these widths are compared with packed
#: codes of the OCP format `SIX_BITS`.
WIDTHS, SIX_BITS = (3, 5, 7), "mxfp6_e2m3"


def measure(session: Session) -> Cells:
    """Yield the cells of all tables.

    Most tables have a row for each setting and a column for each format.
    """
    one_thread()
    session = replace(session, rounds=min(session.rounds, 11), seconds=min(session.seconds, 0.5))
    for size in session.sizes_or((1 << 20,), (1 << 16,)):
        yield from summed_up(_everything(size, session), size_name(size))


def summed_up(cells: Cells, size: str) -> Cells:
    """Yield the cells of frequent settings, and a table that summarizes all other cells."""
    rest: dict[str, list[Measurement]] = {}
    for table, measurement in cells:
        if measurement.row in COMMON:
            yield table, measurement
        else:
            rest.setdefault(table.title.removesuffix(f", {size} elements"), []).append(measurement)
    table = Table(f"rest_{size}", f"Everything else, {size} elements", "× the common case", plot="none")
    for row, found in rest.items():
        failed = "; ".join(f"{m.row}, {m.column}: {m.failed}" for m in found if m.failed)
        measured = sorted((m for m in found if m.median is not None), key=lambda m: m.median or 0.0)
        yield table, Measurement(row, "cases", text=str(len(measured)), failed=failed)
        if measured:
            most = measured[-1]
            yield table, Measurement(row, "half are below", measured[len(measured) // 2].median)
            yield table, replace(most, row=row, column="the most", limit=LIMIT)
            yield table, Measurement(row, "which", text=f"{most.row}, {most.column}")


def _everything(size: int, session: Session) -> Cells:
    x = normal(size, session.seed)
    yield from _quantizing(mx.quantize, x, (FEW[0], FEW[2]) if session.quick else OCP, session)
    if not session.quick:
        yield from _quantizing(mx.fake_quantize, x, FEW, session)
        yield from _other_formats(x, session)
        yield from _other_widths(x, session)
    yield from _other_functions(x, (FEW[0], FEW[2]) if session.quick else OCP, session)


def _quantizing(function: Callable[..., object], x: Array, names: tuple[str, ...], session: Session) -> Cells:
    what, size = function.__name__, size_name(x.size)
    unit = f"× {what} of the common case"
    single = Table(f"{what}_{x.size}", f"{what}, {size} elements", unit)
    drawn = Table(f"{what}_{x.size}_drawn", f"{what}: combinations drawn at random, {size} elements", unit)
    lines = [(single, _choices(x, session.seed)), (drawn, () if session.quick else _combinations(x, session.seed))]
    siblings = _in_every_type(x)
    for table, choices in lines:
        for row, array, options in choices:
            if session.quick and row not in QUICK:
                continue
            usual = x if row in siblings else siblings.get(array.dtype.name, x)
            for name in names:
                case = Case(row, name, partial(function, array, name, **options), array.size / x.size)
                yield from session.compare(table, partial(function, usual, name), case)


def _in_every_type(x: Array) -> dict[str, Array]:
    """Return a mapping from each float type except float32 to the same numbers in this type."""
    return {name: x.astype(dtype) for name, dtype in TYPES.items()}


def _other_formats(x: Array, session: Session) -> Cells:
    title, unit = f"Other formats, {size_name(x.size)} elements", "× the function for the OCP format"
    table = Table(f"formats_{x.size}", title, unit)
    for other, name in OTHERS.items():
        row = f"{other if isinstance(other, str) else other.name}, beside {name}"
        pairs: dict[str, tuple[Function, Function]] = {
            "quantize": (partial(mx.quantize, x, name), partial(mx.quantize, x, other)),
            "fake_quantize": (partial(mx.fake_quantize, x, name), partial(mx.fake_quantize, x, other)),
            "dequantize": (mx.quantize(x, name).dequantize, mx.quantize(x, other).dequantize),
        }
        for column, (usual, run) in pairs.items():
            yield from session.compare(table, usual, Case(row, column, run))


def _other_widths(x: Array, session: Session) -> Cells:
    title, unit = f"Packed codes of other widths, {size_name(x.size)} elements", f"× the function for {SIX_BITS}"
    table = Table(f"widths_{x.size}", title, unit)
    usual = _packings(x, SIX_BITS)
    for bits in WIDTHS:
        element = mx.formats.element(f"int{bits}:")
        for column, run in _packings(x, mx.MXFormat(element, block=32, name=element.name)).items():
            yield from session.compare(table, usual[column], Case(f"{bits} bits", column, run))


def _packings(x: Array, name: str | mx.MXFormat) -> dict[str, Function]:
    q, packed = mx.quantize(x, name), mx.quantize(x, name, packed=True)
    return {
        "quantize, packed=True": partial(mx.quantize, x, name, packed=True),
        "dequantize of packed": packed.dequantize,
        "pack": q.pack,
        "pack, transposed": q.T.pack,
        "unpack": packed.unpacked,
    }


def _other_functions(x: Array, names: tuple[str, ...], session: Session) -> Cells:
    size = size_name(x.size)
    back = Table(f"dequantize_{x.size}", f"dequantize, {size} elements", "× dequantize of the common case")
    alone = Table(f"elements_{x.size}", f"encode, decode, scales alone, {size} elements", "× quantize or dequantize")
    packing = Table(f"packing_{x.size}", f"Packing, {size} elements", "× pack of contiguous rows")
    for name in names:
        q = mx.quantize(x, name)
        for row, run in _dequantizations(x, name):
            yield from session.compare(back, q.dequantize, Case(row, name, run))
        for row, usual, run in _elements(x, q):
            yield from session.compare(alone, usual, Case(row, name, run))
        if q.format.element.bits < 8:
            for row, other in (("transposed", q.T), ("every other row", _every_other_row(x, name))):
                yield from session.compare(packing, q.pack, Case(row, name, other.pack))
            odd = mx.quantize(_ragged(x), name)
            case = Case("rows that end inside a byte", name, odd.pack, odd.size / q.size)
            yield from session.compare(packing, q.pack, case)


def _elements(x: Array, q: mx.MXArray) -> Iterator[tuple[str, Function, Function]]:
    """Yield for each row its name, the baseline call and the call to time."""
    element, there = q.format.element, partial(mx.quantize, x, q.format)
    yield "encode", there, partial(mx.encode, x, element)
    yield "encode, rtz", there, partial(mx.encode, x, element, rounding="rtz")
    yield "encode, sr, seed=", there, partial(mx.encode, x, element, rounding="sr", seed=7)
    yield "shared_scale", there, partial(mx.shared_scale, x, q.format)
    yield "decode", q.dequantize, partial(mx.decode, q.codes, element)


#: Types of the input other than float32.
TYPES: dict[str, Any] = {"float64": np.float64, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}

#: The rows of a quick run.
QUICK = (
    "rounding rtz", "rounding sr, seed=", "overflow ieee", "scale_rule rceil", "nonfinite element", "scales given",
    "blocks along columns", "tiles 32 × 32", "block_size 16", "every other row", "Fortran order", "float64", "bfloat16",
    "offset float16", "one NaN in each 4,096 elements",
)  # fmt: skip


def _choices(x: Array, seed: int) -> Iterator[tuple[str, Array, dict[str, Any]]]:
    """Yield for each row its name, the array to quantize, and keywords of the function."""
    rng = np.random.default_rng(seed + 1)
    words = rng.integers(0, 1 << 32, x.shape, dtype=np.uint32)
    for rounding in ("rna", "rtz", "rtp", "rtn", "rto"):
        yield f"rounding {rounding}", x, {"rounding": rounding}
    yield "rounding sr, seed=", x, {"rounding": "sr", "seed": 7}
    yield "rounding sr, seed=, sr_bits=8", x, {"rounding": "sr", "seed": 7, "sr_bits": 8}
    yield "rounding sr, random_bits=", x, {"rounding": "sr", "random_bits": words}
    yield "overflow ieee", x, {"overflow": "ieee"}
    yield "overflow ieee, rtp", x, {"overflow": "ieee", "rounding": "rtp"}
    for rule in ("ceil", "even", "rceil"):
        yield f"scale_rule {rule}", x, {"scale_rule": rule}
    yield "nonfinite element", x, {"nonfinite": "element"}
    yield "nonfinite raise", x, {"nonfinite": "raise"}
    given = mx.shared_scale(x, "mxfp8_e4m3")
    yield "scales given", x, {"scales": given}
    yield "scales given, rtz", x, {"scales": given, "rounding": "rtz"}
    yield "offset float16", x, {"offset": "float16"}
    yield "offset float16, half", x, {"offset": "float16", "offset_range": "half"}
    yield from _layouts(x)
    yield from _sources(x)
    yield from _contents(x)


def _layouts(x: Array) -> Iterator[tuple[str, Array, dict[str, Any]]]:
    """Yield rows with uncommon blocks and strides."""
    columns = x.shape[1]
    for size in dict.fromkeys((1, 8, 16, 17, 64, 128, columns)):
        yield "block_size the row" if size == columns else f"block_size {size}", x, {"block_size": size}
    yield "blocks along columns", x, {"axis": 0}
    yield "blocks along columns, rtz", x, {"axis": 0, "rounding": "rtz"}
    for r, c in ((4, 4), (32, 32), (128, 128), (1, 64), (64, 1)):
        yield f"tiles {r} × {c}", x, {"block_shape": (r, c)}
    odd = _ragged(x)
    yield "rows that end in a short block", odd, {}
    yield "columns that end in a short block", odd, {"axis": 0}
    if columns % 128 == 0:
        yield "three axes, blocks along the middle", x.reshape(-1, 128, columns // 128), {"axis": 1}
    yield "every other row", np.repeat(x, 2, axis=0)[::2], {}
    yield "every other column", np.repeat(x, 2, axis=1)[:, ::2], {}
    yield "part of wider rows", np.pad(x, ((0, 0), (0, 64)))[:, :columns], {}
    yield "rows backwards", np.ascontiguousarray(x[:, ::-1])[:, ::-1], {}
    yield "Fortran order", np.asfortranarray(x), {}
    yield "Fortran order, blocks along columns", np.asfortranarray(x), {"axis": 0}
    yield "other byte order", x.astype(x.dtype.newbyteorder()), {}


def _sources(x: Array) -> Iterator[tuple[str, Array, dict[str, Any]]]:
    """Yield rows with inputs that are not float32."""
    for name, y in _in_every_type(x).items():
        yield name, y, {}
        yield f"{name}, rtz", y, {"rounding": "rtz"}
        yield f"{name}, sr, seed=", y, {"rounding": "sr", "seed": 7}
        yield f"{name}, blocks along columns", y, {"axis": 0}


def _contents(x: Array) -> Iterator[tuple[str, Array, dict[str, Any]]]:
    """Yield rows with values that do not occur in the common case."""
    flat = x.ravel()
    yield "zeros", np.zeros_like(x), {}
    yield "subnormal numbers", x * np.float32(1e-40), {}
    yield "numbers near the largest", np.clip(x, -3, 3) * np.float32(1e38), {}
    for every in (4096, 32):
        y = flat.copy()
        y[5::every] = np.nan
        yield f"one NaN in each {every:,} elements", y.reshape(x.shape), {}
    wide = flat * np.exp2(np.random.default_rng(0).integers(-120, 120, flat.size)).astype(np.float32)
    yield "exponents all over the range", wide.reshape(x.shape), {}


def _combinations(x: Array, seed: int) -> Iterator[tuple[str, Array, dict[str, Any]]]:
    """Yield random combinations of settings, to find slow combinations that have no row."""
    rng = np.random.default_rng(seed + 2)
    words = rng.integers(0, 1 << 32, x.shape, dtype=np.uint32)

    def pick(values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    layouts: list[tuple[str, dict[str, Any]]] = [
        ("rows", {}), ("columns", {"axis": 0}), ("rows of 16", {"block_size": 16}), ("4 × 4", {"block_shape": (4, 4)}),
    ]  # fmt: skip
    sources = {
        "float32": x,
        "float64": x.astype(np.float64),
        "bfloat16": x.astype(ml_dtypes.bfloat16),
        "float32 in Fortran order": np.asfortranarray(x),
        "float16, every other row": np.repeat(x, 2, axis=0).astype(np.float16)[::2],
    }
    seen: set[str] = set()
    while len(seen) < DRAWN:
        source, (layout, options) = pick(list(sources)), pick(layouts)
        rounding = pick(("rne", "rna", "rtz", "rtp", "rtn", "rto", "sr, seed", "sr, bits"))
        rule, overflow = pick(("floor", "ceil", "even", "rceil")), pick(("saturate", "ieee"))
        nonfinite = pick(("block", "element"))
        row = f"{source}, {layout}, {rounding}, {rule}, {overflow}, {nonfinite}"
        if row in seen:
            continue
        seen.add(row)
        randomness: dict[str, dict[str, Any]] = {"sr, seed": {"seed": 7}, "sr, bits": {"random_bits": words}}
        random = randomness.get(rounding, {})
        modes = {"rounding": rounding[:3].rstrip(","), "scale_rule": rule, "overflow": overflow, "nonfinite": nonfinite}
        yield row, sources[source], {**options, **modes, **random}


def _dequantizations(x: Array, name: str) -> Iterator[tuple[str, Callable[[], object]]]:
    q = mx.quantize(x, name)
    for dtype in ("float64", "bfloat16", "float16"):
        yield f"to {dtype}", partial(q.dequantize, dtype)
    for size in (8, 16, 128):
        yield f"block_size {size}", mx.quantize(x, name, block_size=size).dequantize
    columns = mx.quantize(x, name, axis=0)
    yield "blocks along columns", columns.dequantize
    yield "blocks along columns, to bfloat16", partial(columns.dequantize, "bfloat16")
    yield "tiles 32 × 32", mx.quantize(x, name, block_shape=(32, 32)).dequantize
    yield "transposed", q.T.dequantize
    yield "every other row", _every_other_row(x, name).dequantize
    yield "offset float16", mx.quantize(x, name, offset="float16").dequantize
    y = x.ravel().copy()
    y[5::32] = np.nan
    yield "all NaN", mx.quantize(y.reshape(x.shape), name).dequantize
    yield (
        "scales all over the range",
        mx.MXArray.from_parts(
            q.codes, np.random.default_rng(0).integers(0, 255, q.scales.shape, dtype=np.uint8), name
        ).dequantize,
    )


def _every_other_row(x: Array, name: str) -> mx.MXArray:
    return mx.quantize(np.repeat(x, 2, axis=0), name)[::2]


def _ragged(x: Array) -> Array:
    """Return most numbers of `x` in rows that end inside a block and inside a packed byte."""
    columns = x.shape[1] + 13
    return x.ravel()[: x.size // columns * columns].reshape(-1, columns)
