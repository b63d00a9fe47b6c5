"""Check on this machine that compiled code gives the bits of the exact reference.

``mxnum selftest`` is for a processor, an operating system or a version of numpy or numba on which
the project was not tested. The command checks common calls within seconds, or every kind of call
with ``--all``, and prints a report that users can paste into an issue.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import mxnum as mx
from mxnum import formats, reference
from mxnum.formats import ElementFormat, MXFormat
from mxnum.memory.dtypes import Array, numpy_dtype
from mxnum.modes import FloatScaleRule, Rounding, ScaleRule

#: The packages whose versions decide which machine code runs.
PACKAGES = ("numpy", "numba", "llvmlite", "ml_dtypes", "numba-cuda", "torch")
#: The formats in which all modes are checked.
WIDE, NARROW = "mxfp8_e4m3", "mxfp4_e2m1"
#: The cases that are checked without ``--all``. The loops for these cases compile in seconds.
COMMON = (WIDE, NARROW, "mxint8", f"{NARROW}, packed")
SEED = 20250630
#: The length of a row: one block and a part of the next. With this length, the last elements of a
#: row do not fill a vector register.
COLUMNS = 55
ROWS = 12


@dataclass(frozen=True)
class Check:
    """The outcome of comparing the results of one kind of call with the expected results."""

    what: str
    numbers: int
    #: The number of wrong results. `first` describes the first wrong result.
    wrong: int
    first: str = ""

    def __str__(self) -> str:
        verdict = "right" if not self.wrong else f"{self.wrong:,} of {self.numbers:,} WRONG: {self.first}"
        return f"{self.what:<44} {verdict}"


@dataclass(frozen=True)
class SelfTest:
    """Facts about this machine, and the outcome of each check. ``str`` returns a report."""

    facts: dict[str, str]
    checks: list[Check] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """True if every number was right."""
        return not any(check.wrong for check in self.checks)

    @property
    def verdict(self) -> str:
        """The outcome of all checks in one sentence."""
        failed = sum(check.wrong > 0 for check in self.checks)
        if failed:
            return f"{failed} of {len(self.checks)} kinds of call give WRONG BITS here. Please report this text."
        numbers = sum(check.numbers for check in self.checks)
        return f"{numbers:,} numbers in {len(self.checks)} kinds of call equal the exact reference, bit for bit."

    def __str__(self) -> str:
        return "\n".join([facts_text(self.facts), "", *map(str, self.checks), "", self.verdict])


def selftest(done: Callable[[Check, int], Any] = lambda check, of: None, *, everything: bool = False) -> SelfTest:
    """Check three common formats or, with `everything`, every format, mode, float type and layout.

    `done(check, count)` is called after each check; `count` is the total number of checks.

    >>> from mxnum.selftest import selftest
    >>> selftest().passed  # doctest: +SKIP
    True
    """
    cases = [case for case in _cases() if everything or case[0] in COMMON]
    found = SelfTest(facts())
    for what, compare in cases:
        found.checks.append(_compared(what, compare()))
        done(found.checks[-1], len(cases))
    return found


def facts_text(facts: dict[str, str]) -> str:
    """Return facts as lines of text."""
    return "\n".join(f"{name:<12} {fact}" for name, fact in facts.items())


def facts() -> dict[str, str]:
    """Return versions of packages, a description of the machine, and the kind of loops that run."""
    from mxnum.engine.machine import workers

    installed = {}
    for package in PACKAGES:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "mxnum": f"{mx.__version__}, Python {platform.python_version()}",
        "packages": ", ".join(f"{name} {version}" for name, version in installed.items()),
        "machine": f"{platform.platform()}, {_processor()}, {os.cpu_count()} cores, {sys.byteorder}-endian",
        "floats": "the processor rounds to nearest even and keeps subnormal numbers, so the fast loops run"
        if workers.may_use_floats()
        else "the processor is not in the default mode of IEEE 754, or nothing is compiled, so the integer loops run",
        "GPU": _gpu(),
    }


def _processor() -> str:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    wide = [name for name in ("avx2", "avx512f", "amx-bf16", "neon", "sve") if features.get(name)]
    return " ".join([platform.machine(), llvm.get_host_cpu_name(), *wide])


def _gpu() -> str:
    try:
        from mxnum.engine.cuda import driver

        driver.check()
        name = driver.cuda.get_current_device().name
        return name.decode() if isinstance(name, bytes) else str(name)
    except ModuleNotFoundError:
        return "not searched for (needs the extra cuda)"
    except Exception as problem:  # an incomplete driver can raise many kinds of errors
        return f"not used: {problem}"


#: Pairs of arrays: the result of mxnum, and the expected result.
Pairs = list[tuple[Any, Any]]


def _cases() -> Iterator[tuple[str, Callable[[], Pairs]]]:
    """Yield the name of each case, and a function that computes its results and expected results.

    The loops of a case compile only when its function is called.
    """
    for name in formats.names():
        yield name, partial(_quantized, name)
    for rounding in Rounding:
        if rounding.value != "rne":
            yield f"{WIDE}, rounding {rounding.value}", partial(_quantized, WIDE, rounding=rounding.value)
    for fmt, rules in ((NARROW, ScaleRule), ("nvfp4", FloatScaleRule)):
        for rule in list(rules)[1:]:
            yield f"{fmt}, scale rule {rule.value}", partial(_quantized, fmt, scale_rule=rule.value)
    for source in ("float64", "bfloat16", "float16"):
        yield f"{WIDE} from {source}", partial(_quantized, WIDE, source)
    yield f"{WIDE}, overflow ieee", partial(_quantized, WIDE, overflow="ieee")
    yield f"{WIDE}, nonfinite element", partial(_quantized, WIDE, nonfinite="element")
    yield f"{NARROW}, columns", partial(_quantized, NARROW, blocks=(32, 1))
    yield f"{NARROW}, tiles of 16 x 16", partial(_quantized, NARROW, blocks=(16, 16))
    yield f"{NARROW}, packed", partial(_quantized, NARROW, packed=True)
    yield f"{NARROW}, random bits from a seed", _seeded
    yield "mxint8, asymmetric", partial(_quantized, "mxint8", offset="float16")
    for accumulate in ("exact", "block", "sequential"):
        yield f"products, {accumulate}", partial(_product, accumulate)
    yield "many threads", _threads
    if not _gpu().startswith("not "):
        for name in formats.names():
            yield f"{name} on the GPU", partial(_on_gpu, name)


def _numbers(fmt: MXFormat, source: ElementFormat) -> Array:
    """Return rows of numbers that are difficult to round, at many scales.

    The rows hold element values, midpoints between element values, the neighbours of these numbers,
    normally distributed numbers, and special values.
    """
    random = np.random.default_rng(SEED)
    grid = np.array(sorted({v for v in fmt.element.values() if np.isfinite(v)}))
    points = np.concatenate([grid, (grid[1:] + grid[:-1]) / 2, grid * 1.0625])
    dtype = numpy_dtype(source)
    reach = 12 if source.name == "float16" else 100
    scales = np.exp2(random.integers(-reach, 8 if source.name == "float16" else reach, (ROWS, 1)))
    with np.errstate(over="ignore", under="ignore"):
        x = (random.choice(points, (ROWS, COLUMNS)) * scales).astype(dtype)
        x[1::3] = (random.standard_normal((len(x[1::3]), COLUMNS)) * scales[1::3]).astype(dtype)
    bits = x.view(f"u{dtype.itemsize}")
    # In every second row, move each number away from zero by 0, 1 or 2 units in the last place.
    bits[::2] += random.integers(0, 3, bits[::2].shape).astype(bits.dtype)
    top, sign = source.max_code, 1 << (source.bits - 1)
    bits[-1, :8] = 0, sign, 1, 1 | sign, top, top | sign, 1 << source.mantissa_bits, (1 << source.mantissa_bits) - 1
    has_nan = fmt.element.nan_code is not None
    # One number becomes infinity, and another one becomes NaN, or minus infinity if the element
    # format has no NaN.
    bits[-2, 3], bits[-3, 40] = top + 1, top + 2 if has_nan else sign | (top + 1)
    return x


def _quantized(name: str, source: str = "float32", packed: bool = False, **settings: Any) -> Pairs:
    fmt = formats.get(name)
    x = _numbers(fmt, formats.FLOATS[source])
    if settings.get("offset"):
        # Limit the numbers, because offsets are float16 and could overflow.
        x = np.clip(np.nan_to_num(x.astype(np.float64)), -1e4, 1e4).astype(x.dtype)
    if Rounding(settings.get("rounding", "rne")).is_stochastic:
        settings["random_bits"] = np.random.default_rng(SEED).integers(0, 1 << 32, x.shape, np.uint32)
    ours = mx.quantize(x, fmt, packed=packed, **settings)
    right = reference.quantize(x, fmt, **settings)
    values = reference.dequantize(
        right.codes, right.scales, fmt, blocks=settings.get("blocks"), dtype=source, offsets=right.offsets,
        tensor_scale=right.tensor_scale,
    )  # fmt: skip
    pairs: Pairs = [(ours.codes, right.codes), (ours.scales, right.scales), (ours.dequantize(source), values)]
    pairs += [(ours.offsets, right.offsets)] if right.offsets is not None else []
    pairs += [(ours.tensor_scale, right.tensor_scale)] if right.tensor_scale is not None else []
    return pairs


def _seeded() -> Pairs:
    x = _numbers(formats.get(NARROW), formats.FLOATS["float32"])
    words = reference.random_words(x.shape, seed=SEED, stream=3)
    ours = mx.quantize(x, NARROW, rounding="sr", seed=SEED, stream=3)
    return [(ours.codes, reference.quantize(x, NARROW, rounding="sr", random_bits=words).codes)]


def _product(accumulate: str) -> Pairs:
    random = np.random.default_rng(SEED)
    a, b = (random.standard_normal((5, 64)).astype(np.float32) for _ in "ab")
    qa, qb = mx.quantize(a, WIDE), mx.quantize(b, NARROW)
    rows, columns = (
        [
            reference.Blocked(codes, scales, q.format, q.format.block)
            for codes, scales in zip(q.codes, q.scales, strict=True)
        ]
        for q in (qa, qb)
    )
    right = reference.matmul(rows, columns, accumulate=accumulate)
    return [(mx.matmul(qa, qb.T, accumulate=accumulate), right)]


def _threads() -> Pairs:
    x = np.random.default_rng(SEED).standard_normal(2_000_003, np.float32)
    alone, together = (mx.quantize(x, WIDE, rounding="sr", seed=SEED, threads=n) for n in (1, None))
    return [(together.codes, alone.codes), (together.scales, alone.scales)]


def _on_gpu(name: str) -> Pairs:
    from mxnum.engine.cuda import driver

    x = _numbers(formats.get(name), formats.FLOATS["float32"])
    there: Any = mx.quantize(driver.cuda.to_device(x), name)
    here, copied, values = mx.quantize(x, name), there.to_host(), there.dequantize().copy_to_host()
    return [(copied.codes, here.codes), (copied.scales, here.scales), (values, here.dequantize())]


def _compared(what: str, pairs: Pairs) -> Check:
    """Compare pairs of arrays bit by bit. NaNs with different bits count as different."""
    numbers = wrong = 0
    first = ""
    for ours, right in pairs:
        unsigned = f"u{right.dtype.itemsize}"
        got, wanted = (np.ascontiguousarray(side).reshape(-1).view(unsigned) for side in (ours, right))
        differ = np.flatnonzero(got != wanted)
        if len(differ) and not first:
            at = differ[0]
            first = f"element {at} is {int(got[at]):#x} and should be {int(wanted[at]):#x}"
        numbers, wrong = numbers + len(wanted), wrong + len(differ)
    return Check(what, numbers, wrong, first)
