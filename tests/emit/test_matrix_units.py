"""Tests that emitted models of matrix units equal the reference bit for bit in all languages."""

from __future__ import annotations

import ctypes
import re
import subprocess
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from mxnum import units
from mxnum.emit import LANGUAGES, matrix_unit_model
from mxnum.formats import FLOATS
from mxnum.memory.dtypes import ML_DTYPES
from mxnum.reference import unit_dot
from tests import samples
from tests.emit.test_reference_models import needs

NAMES = [name for name in units.names() if units.get(name).group == 1 and not units.get(name).scales]
#: The units that the fast tier of tests covers. They accumulate in float32 or float16, and round in
#: different ways.
SOME = ("hopper_fp8", "ampere_bfloat16", "hopper_fp8_mma_acc16")


def codes_of(element, shape, rng):
    """Return random codes of both signs.

    In half of the rows, all codes have similar exponents, so that terms cancel. Some rows contain
    zeros, special codes, and the smallest and largest codes.
    """
    sign, ends = (
        1 << (element.bits - 1),
        [0, 1, element.max_code, element.max_code - 1, element.bias << element.mantissa_bits],
    )
    if element.specials != "none":
        ends.append(element.max_code + 1)  # infinity or NaN
    near = (element.bias << element.mantissa_bits) + rng.integers(0, 3 << element.mantissa_bits, shape)
    codes = np.where(rng.random((shape[0], 1)) < 0.5, near, rng.integers(0, element.max_code + 1, shape))
    is_end = rng.random(shape) < np.where(rng.random((shape[0], 1)) < 0.3, 0.2, 0)
    codes = np.where(is_end, rng.choice(ends, shape), codes)
    return codes | np.where(rng.random(shape) < 0.5, sign, 0)


def vectors(unit, a, b, count):
    """Return random codes of both operands, and random addends."""
    rng, accumulator = samples.generator("fused model", unit.name), FLOATS[unit.accumulator]
    x, y = codes_of(a, (count, unit.terms), rng), codes_of(b, (count, unit.terms), rng)
    c = codes_of(accumulator, (count, 1), rng)[:, 0]
    # Give the first addends increasing exponents, so that alignment truncates more and more bits of
    # the products.
    for gap in range(min(40, count // 4)):
        field = max(1, min(accumulator.bias - 10 + gap, accumulator.max_code >> accumulator.mantissa_bits))
        c[gap] = (field << accumulator.mantissa_bits) | (c[gap] & ((1 << accumulator.mantissa_bits) - 1))
    return x, y, c


def right(unit, a, b, x, y, c):
    """Return the results of one fused sum for each row, computed by the reference."""
    one = unit.but(k=(unit.terms,), addend="term", order=(), promotion=0)
    accumulator = FLOATS[unit.accumulator]
    addends = c.astype(f"u{accumulator.bits // 8}").view(unit.accumulator)
    rows = zip(viewed(a, x), viewed(b, y), addends, strict=True)
    return [unit_dot(*pair, one, addend) for *pair, addend in rows]


def viewed(element, codes):
    if element.name == "tf32":
        return (codes.astype(np.uint32) << 13).view(np.float32)
    dtype = np.dtype(getattr(ml_dtypes, ML_DTYPES[element.name]) if element.name in ML_DTYPES else element.name)
    return codes.astype(f"u{dtype.itemsize}").view(dtype)


def in_c(folder, unit, elements, x, y, c):
    (folder / "m.h").write_text(matrix_unit_model("c", unit, **elements, name="m"))
    p, q = (f"uint{8 if e.bits <= 8 else 32 if e.bits > 16 else 16}_t" for e in formats_of(unit, elements))
    result = f"uint{FLOATS[unit.accumulator].bits}_t"
    (folder / "m.c").write_text(f"""#include "m.h"
        void run(long n, int k, const {p} *a, const {q} *b, const {result} *c, {result} *d) {{
            for (long i = 0; i < n; i++) d[i] = m_fused_sum(a + i * k, b + i * k, k, c[i]);
        }}""")
    strict = "-std=c99 -O1 -Wall -Wextra -Werror -pedantic -Wno-unused-function -fsanitize=undefined"
    trap = "-fsanitize-undefined-trap-on-error -shared -fPIC m.c -o m.so"
    subprocess.run(["gcc", *strict.split(), *trap.split()], cwd=folder, check=True)
    wide = [8 * ctypes.sizeof(getattr(ctypes, f"c_{kind.removesuffix('_t')}")) for kind in (p, q, result)]
    held = [np.ascontiguousarray(v.astype(f"u{bits // 8}")) for v, bits in zip((x, y, c), wide, strict=True)]
    out = np.empty_like(held[2])
    pointers = [each.ctypes.data_as(ctypes.c_void_p) for each in (*held, out)]
    ctypes.CDLL(str(folder / "m.so")).run(ctypes.c_long(len(x)), ctypes.c_int(x.shape[1]), *pointers)
    return out.tolist()


def in_javascript(folder, unit, elements, x, y, c):
    (folder / "m.mjs").write_text(matrix_unit_model("javascript", unit, **elements))
    cases = ",\n".join(f"[{p}, {q}, {r}]" for p, q, r in zip(x.tolist(), y.tolist(), c.tolist(), strict=True))
    (folder / "run.mjs").write_text(f"""import {{ fused_sum }} from "./m.mjs";
        for (const [a, b, c] of [{cases}]) console.log(fused_sum(a, b, c));""")
    printed = subprocess.run(["node", "run.mjs"], cwd=folder, check=True, capture_output=True, text=True).stdout
    return [int(line) for line in printed.split()]


def in_systemverilog(folder, unit, elements, x, y, c):
    (folder / "m.sv").write_text(matrix_unit_model("systemverilog", unit, **elements, name="m"))
    bits = [each.bits for each in formats_of(unit, elements)]

    def vector(row, width):
        return f"{width * len(row)}'h{sum(code << (i * width) for i, code in enumerate(row)):x}"

    calls = "\n".join(
        f'$display("%0d", m::fused_sum({vector(p, bits[0])}, {vector(q, bits[1])}, {r}));'
        for p, q, r in zip(x.tolist(), y.tolist(), c.tolist(), strict=True)
    )
    (folder / "bench.sv").write_text(f"module bench; initial begin\n{calls}\nend endmodule")
    subprocess.run(["iverilog", "-g2012", "-o", "bench", "m.sv", "bench.sv"], cwd=folder, check=True)
    printed = subprocess.run(["vvp", "bench"], cwd=folder, check=True, capture_output=True, text=True).stdout
    return [int(line) for line in printed.split()]


def in_python(folder, unit, elements, x, y, c):
    module = {}
    exec(matrix_unit_model("python", unit, **elements), module)
    return [module["fused_sum"](*case) for case in zip(x.tolist(), y.tolist(), c.tolist(), strict=True)]


RUN = {"c": in_c, "javascript": in_javascript, "systemverilog": in_systemverilog, "python": in_python}
TOOLS = {"c": "gcc", "javascript": "node", "systemverilog": "iverilog"}
CASES = [
    pytest.param(
        language, name,
        marks=[*([needs(TOOLS[language])] if language in TOOLS else []), *([] if name in SOME else [pytest.mark.full])],
    )
    for language in LANGUAGES
    for name in NAMES
]  # fmt: skip


def formats_of(unit, elements):
    return [unit.formats[elements[side]] for side in ("a", "b")]


@cache
def cases_of(name):
    """Return a unit, its operands' formats, the codes of 240 sums' inputs, and the results."""
    unit = units.get(name)
    elements = {"a": unit.operands[0], "b": unit.operands[-1]}
    a, b = formats_of(unit, elements)
    codes = vectors(unit, a, b, 240)
    return unit, elements, codes, right(unit, a, b, *codes)


@pytest.mark.parametrize(("language", "name"), CASES)
def test_every_language_equals_the_reference(language, name, tmp_path):
    unit, elements, codes, wanted = cases_of(name)
    assert RUN[language](tmp_path, unit, elements, *codes) == wanted
    assert len(set(wanted)) > 60  # results that are mainly zeros, infinities and NaNs test little


def test_the_addend_of_a_unit_that_adds_it_after_the_sums():
    """Check that two fused sums, followed by `add` with the addend, equal the unit's result."""
    unit, module = units.get("hopper_fp8_mma_acc16"), {}
    exec(matrix_unit_model("python", unit), module)
    element = unit.formats["e4m3"]
    rng = samples.generator("after")
    for _ in range(50):
        x, y = (codes_of(element, (1, 32), rng)[0] for _ in range(2))
        c = int(codes_of(FLOATS["float16"], (1, 1), rng)[0, 0])
        total = 0
        for first in (0, 16):
            some = list(unit.order[first : first + 16])
            total = module["fused_sum"](x[some].tolist(), y[some].tolist(), total)
        found = module["add"](total, c)
        wanted = unit_dot(viewed(element, x), viewed(element, y), unit, np.uint16(c).view(np.float16))
        assert found == wanted or ((found & 0x7FFF) > 0x7C00 and wanted == 0x7FFF)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"unit": "blackwell_nvfp4"}, "'unit' must be a unit whose terms are single products without scales"),
        ({"unit": "blackwell_mxfp8"}, "'unit' must be a unit whose terms are single products without scales"),
        ({"unit": "hopper_fp8", "a": "e2m1"}, "'a' must be one of"),
        ({"unit": "hopper_fp8", "name": "2 words"}, "'name' must be a name of letters, digits and _"),
        ({"unit": "hopper_fp8", "language": "rust"}, "'language' must be one of"),
    ],
)
def test_what_has_no_model_raises(arguments, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        matrix_unit_model(**{"language": "c", **arguments})
