"""Tests that C functions are proved or refuted, and that the LLVM IR executor agrees with gcc."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import shutil
import struct
import subprocess

import pytest
import z3

from mxnum.conformance import prove
from mxnum.emit import reference_model
from mxnum.prove import c, clang_ir
from mxnum.prove.solvers import solve

needs_clang = pytest.mark.skipif(
    shutil.which("clang") is None and importlib.util.find_spec("ziglang") is None,
    reason="clang is not installed (extra prove)",
)
pytestmark = needs_clang


def written(folder, text, name="f.c"):
    path = folder / name
    path.write_text(f"#include <stdint.h>\n#include <string.h>\n{text}")
    return path


def test_an_emitted_header_is_proved_and_another_rounding_is_refuted(tmp_path):
    header = tmp_path / "m.h"
    header.write_text(reference_model("c", "mxfp4_e2m1", rounding="rtz", name="m"))
    assert prove(header, "encode", "mxfp4_e2m1", function="m_encode", rounding="rtz")
    refuted = prove(header, "encode", "mxfp4_e2m1", function="m_encode")
    assert refuted.verdict == "refuted"
    assert "rne rounds to the nearer one" in str(refuted) or "a tie" in str(refuted)


#: Programs in C, each with a function `f` of a float and an integer.
PROGRAMS = {
    "branches": "uint32_t f(float x, uint32_t c) { if (c & 1) { if (c > 9) return 1; c += 5; } return c * 3; }",
    "switch": """uint32_t f(float x, uint32_t c) {
        switch (c & 7) { case 0: return c; case 3: case 5: return c / 3; default: return c % 5; } }""",
    "loop": """uint32_t f(float x, uint32_t c) {
        uint32_t s = 0; for (int i = 0; i < 20; i++) { if (c >> i & 1) s = s * 3 + i; else if (s > 99) break; }
        return s; }""",
    "table": """static const int16_t T[8] = {1, -2, 3, -400, 5, 6, 7, 8};
        uint32_t f(float x, uint32_t c) { return (uint32_t)T[(c * 5 + 1) & 7]; }""",
    "table of two dimensions": """static const uint8_t T[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 200}};
        uint32_t f(float x, uint32_t c) { return T[c >> 1 & 1][c & 3]; }""",
    "sum": "uint32_t f(float x, uint32_t c) { float y = x + 0.5f; memcpy(&c, &y, 4); return y != y ? 0 : c; }",
    "product": "uint32_t f(float x, uint32_t c) { float y = x * -3.0f; memcpy(&c, &y, 4); return y != y ? 0 : c; }",
    "comparison": "uint32_t f(float x, uint32_t c) { return x > 2.0f ? 1 : x <= -1.5f ? 2 : x != x ? 3 : c; }",
    "to integer": "uint32_t f(float x, uint32_t c) { return x > -9.0f && x < 9.0f ? (uint32_t)(int)x : 7; }",
    "from integer": "uint32_t f(float x, uint32_t c) { float y = (float)c; memcpy(&c, &y, 4); return c; }",
    "double": """uint32_t f(float x, uint32_t c) {
        double y = x; uint64_t b; memcpy(&b, &y, 8); return x != x ? 0 : b >> 31; }""",
    "signs": "uint32_t f(float x, uint32_t c) { float y = -__builtin_fabsf(x); memcpy(&c, &y, 4); return c; }",
    "counting": """uint32_t f(float x, uint32_t c) {
        return c ? __builtin_clz(c) + __builtin_ctz(c) + __builtin_popcount(c) : 99; }""",
    "select of floats": "uint32_t f(float x, uint32_t c) { float y = c > 4 ? x : 0.25f; memcpy(&c, &y, 4); return c; }",
}  # fmt: skip
CORNERS = [
    *itertools.product((0.0, -0.0, 0.3, -1.5, 2.0, 3e38, -1e-40, float("inf"), float("nan")), (0, 3)),
    *((1.5, c) for c in (1, 2, 4, 5, 6, 7, 11, 13, 0xFF, 0xFFFFFFFF, 0x80000000, 16777219)),
]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_executor_computes_what_gcc_computes(tmp_path, name):
    path = written(tmp_path, PROGRAMS[name])
    subprocess.run(["gcc", "-O0", "-w", "-shared", "-fPIC", path, "-o", tmp_path / "f.so"], check=True)
    native = ctypes.CDLL(str(tmp_path / "f.so")).f
    native.argtypes, native.restype = (ctypes.c_float, ctypes.c_uint32), ctypes.c_uint32
    function = clang_ir.parse(c._compiled([path], "f", {}, ()), "f")
    x, n = z3.BitVecs("x n", 32)
    result = clang_ir.execute(function, [x, n])
    for number, integer in CORNERS:
        (bits,) = struct.unpack("<I", struct.pack("<f", number))
        values = [(x, z3.BitVecVal(bits, 32)), (n, z3.BitVecVal(integer, 32))]
        given = [z3.simplify(z3.substitute(each, *values)) for each in (*result.premises, *result.obligations)]
        differs = z3.simplify(z3.substitute(result.value, *values)) != native(number, integer)
        assert solve(given, [], 20).verdict == "sat"
        assert solve([*given, differs], [], 20).verdict == "unsat", (number, integer)


def test_undefined_behaviour_is_refuted(tmp_path):
    path = written(tmp_path, "uint32_t f(uint8_t code, uint8_t scale) { return 1u << (code + scale); }")
    refuted = prove(path, "decode", "mxfp4_e2m1", function="f")
    assert refuted.verdict == "refuted"


def test_arrays_and_tables_of_floats(tmp_path):
    """Check that a sum that can be -0 is refuted, and that this sum plus 0.0 is proved."""
    values = ", ".join(f"{v}f" for v in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0))
    text = f"""static const float T[8] = {{{values}}};
    static float value(int c) {{ return c & 8 ? -T[c & 7] : T[c & 7]; }}
    float f(const uint8_t *a, const uint8_t *b) {{ return value(a[0]) * value(b[0]) + value(a[1]) * value(b[1]); }}
    float g(const uint8_t *a, const uint8_t *b) {{ return f(a, b) + 0.0f; }}"""
    path = written(tmp_path, text)
    refuted = prove(path, "dot", "mxfp4_e2m1", function="f", terms=2)
    assert (refuted.counterexample.right, refuted.counterexample.found) == ({"value": 0}, {"value": 1 << 31})
    assert prove(path, "dot", "mxfp4_e2m1", function="g", terms=2)


def test_ports_say_what_pointers_point_to(tmp_path):
    header = tmp_path / "m.h"
    header.write_text(reference_model("c", "mxfp4_e2m1", name="m"))
    text = "void f(const uint32_t *from, uint8_t *to) { *to = m_encode(*from, 127) ^ WRONG; }"
    path = written(tmp_path, f'#include "m.h"\n{text}')
    ports = {"from": "x", "to": "code"}
    for wrong, verdict in ((0, "proved"), (1, "refuted")):
        macros = {"WRONG": wrong}
        proof = prove(path, "encode", "e2m1", function="f", ports=ports, parameters=macros, include=[tmp_path])
        assert proof.verdict == verdict
    with pytest.raises(ValueError, match="'ports' must say what 'to' of 'f' points to"):
        prove(path, "encode", "e2m1", function="f", ports={"from": "x"}, parameters={"WRONG": 0}, include=[tmp_path])


def test_a_report_says_which_parameter_is_taken_as_the_scale(tmp_path):
    path = written(tmp_path, "uint8_t f(float low, float high) { return 0; }")
    report = str(prove(path, "encode", "mxfp4_e2m1", function="f"))
    assert "Input 'high' is bound to the operation's input 'scale'." in report
    report = str(prove(path, "encode", "mxfp4_e2m1", function="f", ports={"high": 0}))
    assert "is bound to" not in report
    assert "Held constant: high = 0." in report
    with pytest.raises(ValueError, match="'ports' must map 'high' to a number of at most 32 bits, not to 4294967296"):
        prove(path, "encode", "mxfp4_e2m1", function="f", ports={"high": 1 << 32})
    with pytest.raises(ValueError, match=r"'ports' must map output 'return' to one of \['code'\], not to a number"):
        prove(path, "encode", "mxfp4_e2m1", function="f", ports={"return": 1})


def test_an_unknown_function_is_named(tmp_path):
    path = written(tmp_path, "uint8_t f(float x) { return 0; }")
    with pytest.raises(ValueError, match=r"^Argument 'function' must name a function of f.c, not 'g'\.$"):
        prove(path, "encode", "mxfp4_e2m1", function="g")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("uint8_t f(float x) { return y; }", r"f.c:3: use of undeclared identifier 'y'"),
        (
            "uint8_t f(float x, int n) { int s = 0; while (n-- > 0) s ^= n * s + 1; return s; }",
            "in line 3 of f.c: a loop through",
        ),
        ("uint8_t g(void); uint8_t f(float x) { return g(); }", "in line 3 of f.c: .*@g"),
        ("uint8_t f(float x, long double y) { return y > 1; }", "in line 3 of f.c: parameter 'y' has the type"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path, text, message):
    path = written(tmp_path, text)
    ports = {"n": 3} if "int n" in text else {}
    with pytest.raises(ValueError, match=message) as raised:
        prove(path, "encode", "mxfp8_e4m3", function="f", ports=ports)
    assert "\n" not in str(raised.value)
