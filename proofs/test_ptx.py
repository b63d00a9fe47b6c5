"""Tests of the executor of PTX.

The tests compare the executor with the text of the PTX ISA and with compiled CPU code, and check
that the executor refutes wrongly translated kernels.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from typing import Any

import pytest
import z3

from mxnum.definition.convert import make_encode
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding
from mxnum.prove.execution import Execution, UnsupportedCode
from proofs.machines import llvm, programs, ptx, translation
from proofs.machines.translation import Family
from proofs.theorem import Outcome

needs_numba_cuda = pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is missing")
#: The widths in bits of the arguments of the PTX snippets, in the order of `REGISTERS`.
WIDTHS = (8, 8, 16, 16, 32, 32, 64, 64)


def module(body: str, result: str) -> str:
    """Return the text of a function that loads its arguments, runs `body` and returns a register.

    The result is sign-extended to 64 bits.
    """
    parameters = ",\n".join(f"\t.param .b{max(width, 32)} kernel_param_{i}" for i, width in enumerate(WIDTHS))
    prefix = re.match(r"%[a-z]+", result)
    assert prefix is not None
    widen = {
        "%p": f"selp.s64 %rd99, -1, 0, {result};",
        "%rs": f"cvt.s64.s16 %rd99, {result};",
        "%r": f"cvt.s64.s32 %rd99, {result};",
        "%rd": f"mov.u64 %rd99, {result};",
    }[prefix[0]]
    return f"""
.version 9.0
.target sm_90
.visible .func  (.param .b64 func_retval0) kernel(
{parameters}
)
{{
	.reg .pred 	%p<9>;
	.reg .b16 	%rs<9>;
	.reg .b32 	%r<9>;
	.reg .b64 	%rd<100>;

	ld.param.s8 	%rs1, [kernel_param_0];
	ld.param.u8 	%rs2, [kernel_param_1]; // a comment
	ld.param.u16 	%rs3, [kernel_param_2];
	ld.param.s16 	%rs4, [kernel_param_3];
	ld.param.u32 	%r1, [kernel_param_4];
	ld.param.s32 	%r2, [kernel_param_5];
	ld.param.u64 	%rd1, [kernel_param_6];
	ld.param.b64 	%rd2, [kernel_param_7];
	{body}
	{widen}
	st.param.b64 	[func_retval0+0], %rd99;
	ret;

}}
"""


def executed(body: str, result: str) -> Callable[..., int | None]:
    """Return a function that executes instructions on concrete values."""
    symbols = [z3.BitVec(f"a{i}", width) for i, width in enumerate(WIDTHS)]
    execution = ptx.execute(module(body, result), symbols)
    return lambda *values: programs.evaluate(execution, symbols, values)


TOP = -(1 << 63)
#: Cases (instructions, result register, values of the argument registers, expected result).
SNIPPETS: list[tuple[str, str, dict[str, int], int]] = [
    ("", "%rs1", {"rs1": -3}, -3),
    ("", "%rs2", {"rs2": 253}, 253),
    ("add.s32 %r3, %r1, %r2;", "%r3", {"r1": 0x7FFFFFFF, "r2": 1}, -0x80000000),
    ("add.s64 %rd3, %rd1, -5;", "%rd3", {"rd1": 3}, -2),
    ("sub.s64 %rd3, %rd1, %rd2;", "%rd3", {"rd1": 3, "rd2": 10}, -7),
    ("sub.s16 %rs5, %rs3, %rs4;", "%rs5", {"rs3": 3, "rs4": 10}, -7),
    ("mul.lo.s64 %rd3, %rd1, 5;", "%rd3", {"rd1": -3}, -15),
    ("mul.lo.s32 %r3, %r1, %r2;", "%r3", {"r1": 1 << 20, "r2": 1 << 12}, 0),
    ("mul.wide.u32 %rd3, %r1, 8;", "%rd3", {"r1": 0xFFFFFFFF}, 0x7FFFFFFF8),
    ("mul.wide.s32 %rd3, %r1, 8;", "%rd3", {"r1": 0xFFFFFFFF}, -8),
    ("and.b32 %r3, %r1, 255;", "%r3", {"r1": 0x1234}, 0x34),
    ("or.b64 %rd3, %rd1, %rd2;", "%rd3", {"rd1": 0x50, "rd2": 3}, 0x53),
    ("xor.b16 %rs5, %rs3, -1;", "%rs5", {"rs3": 5}, -6),
    ("not.b64 %rd3, %rd1;", "%rd3", {"rd1": 5}, -6),
    ("neg.s64 %rd3, %rd1;", "%rd3", {"rd1": 5}, -5),
    ("abs.s64 %rd3, %rd1;", "%rd3", {"rd1": -5}, 5),
    ("abs.s64 %rd3, %rd1;", "%rd3", {"rd1": TOP}, TOP),
    ("mov.u64 %rd3, -1;", "%rd3", {}, -1),
    ("mov.b32 %r3, %r1;", "%r3", {"r1": 9}, 9),
    ("min.s64 %rd3, %rd1, %rd2;", "%rd3", {"rd1": -1, "rd2": 1}, -1),
    ("min.u64 %rd3, %rd1, %rd2;", "%rd3", {"rd1": -1, "rd2": 1}, 1),
    ("max.s32 %r3, %r1, %r2;", "%r3", {"r1": -1, "r2": 1}, 1),
    ("max.u32 %r3, %r1, %r2;", "%r3", {"r1": -1, "r2": 1}, -1),
    # The PTX ISA: "Shift amounts greater than the register width N are clamped to N."
    ("shl.b32 %r3, %r1, 31;", "%r3", {"r1": 3}, -0x80000000),
    ("shl.b32 %r3, %r1, %r2;", "%r3", {"r1": -1, "r2": 32}, 0),
    ("shl.b64 %rd3, %rd1, %r2;", "%rd3", {"rd1": -1, "r2": 256}, 0),
    ("shl.b64 %rd3, %rd1, %r2;", "%rd3", {"rd1": -1, "r2": -1}, 0),
    ("shl.b16 %rs5, %rs3, %r2;", "%rs5", {"rs3": 1, "r2": 65537}, 0),
    ("shr.u64 %rd3, %rd1, 63;", "%rd3", {"rd1": TOP}, 1),
    ("shr.u64 %rd3, %rd1, %r2;", "%rd3", {"rd1": TOP, "r2": 64}, 0),
    ("shr.s64 %rd3, %rd1, %r2;", "%rd3", {"rd1": TOP, "r2": 62}, -2),
    ("shr.s64 %rd3, %rd1, %r2;", "%rd3", {"rd1": TOP, "r2": 1000}, -1),
    ("shr.s32 %r3, %r1, %r2;", "%r3", {"r1": -8, "r2": 1}, -4),
    ("shr.u16 %rs5, %rs3, 15;", "%rs5", {"rs3": 0x8000}, 1),
    # cvt.D.S converts a number of type S to type D. The sign of S decides how the number is
    # extended to D. If the register is wider than D, the sign of D decides how the result is
    # extended to the register.
    ("cvt.u64.u32 %rd3, %r1;", "%rd3", {"r1": -1}, 0xFFFFFFFF),
    ("cvt.s64.s32 %rd3, %r1;", "%rd3", {"r1": -1}, -1),
    ("cvt.u64.s32 %rd3, %r1;", "%rd3", {"r1": -1}, -1),
    ("cvt.u32.u64 %r3, %rd1;", "%r3", {"rd1": (5 << 32) + 7}, 7),
    ("cvt.u64.u16 %rd3, %rs3;", "%rd3", {"rs3": -1}, 0xFFFF),
    ("cvt.u16.u32 %rs5, %r1;", "%rs5", {"r1": 0x12345}, 0x2345),
    ("cvt.s32.s8 %r3, %r1;", "%r3", {"r1": 0x180}, -128),
    ("cvt.u32.u8 %r3, %r1;", "%r3", {"r1": 0x180}, 128),
    ("cvt.s8.s32 %r3, %r1;", "%r3", {"r1": 0x180}, -128),
    ("cvt.u8.u32 %r3, %r1;", "%r3", {"r1": 0x180}, 128),
    ("setp.lt.s64 %p1, %rd1, %rd2;", "%p1", {"rd1": -1, "rd2": 0}, -1),
    ("setp.lt.u64 %p1, %rd1, %rd2;", "%p1", {"rd1": -1, "rd2": 0}, 0),
    ("setp.gt.u16 %p1, %rs3, 5;", "%p1", {"rs3": -1}, -1),
    ("setp.ge.s32 %p1, %r1, %r2;", "%p1", {"r1": 4, "r2": 4}, -1),
    ("setp.le.u32 %p1, %r1, %r2;", "%p1", {"r1": -1, "r2": 4}, 0),
    ("setp.eq.b64 %p1, %rd1, %rd2;", "%p1", {"rd1": 4, "rd2": 4}, -1),
    ("setp.ne.s16 %p1, %rs3, %rs4;", "%p1", {"rs3": 4, "rs4": 4}, 0),
    ("setp.eq.s32 %p1, %r1, 1; setp.eq.s32 %p2, %r2, 1; and.pred %p3, %p1, %p2;", "%p3", {"r1": 1, "r2": 0}, 0),
    ("setp.eq.s32 %p1, %r1, 1; setp.eq.s32 %p2, %r2, 1; xor.pred %p3, %p1, %p2;", "%p3", {"r1": 1, "r2": 0}, -1),
    ("setp.eq.s32 %p1, %r1, 1; not.pred %p2, %p1;", "%p2", {"r1": 1}, 0),
    ("setp.eq.s32 %p1, %r1, 1; selp.b64 %rd3, %rd1, 77, %p1;", "%rd3", {"r1": 1, "rd1": 5}, 5),
    ("setp.eq.s32 %p1, %r1, 1; selp.b64 %rd3, %rd1, 77, %p1;", "%rd3", {"r1": 0, "rd1": 5}, 77),
    # bfi inserts the low bits of a into b. bfi truncates a field that extends beyond the word, and
    # inserts nothing if the position is beyond the word.
    ("bfi.b64 %rd3, %rd1, %rd2, 8, 8;", "%rd3", {"rd1": 0x1AB, "rd2": 0x77777}, 0x7AB77),
    ("bfi.b32 %r3, %r1, %r2, 28, 8;", "%r3", {"r1": 0xFF, "r2": 5}, -0x10000000 + 5),
    ("bfi.b32 %r3, %r1, %r2, 32, 8;", "%r3", {"r1": 0xFF, "r2": 5}, 5),
    ("bfi.b32 %r3, %r1, %r2, 0, 32;", "%r3", {"r1": 0xFF, "r2": 5}, 0xFF),
    ("bfi.b32 %r3, %r1, %r2, 4, 0;", "%r3", {"r1": 0xFF, "r2": 5}, 5),
    ("bfi.b32 %r3, %r1, %r2, 260, 256;", "%r3", {"r1": 0xFF, "r2": 5}, 5),
]
REGISTERS = ("rs1", "rs2", "rs3", "rs4", "r1", "r2", "rd1", "rd2")


@pytest.mark.parametrize(("body", "register", "arguments", "expected"), SNIPPETS)
def test_every_instruction_does_what_the_isa_says(
    body: str, register: str, arguments: dict[str, int], expected: int
) -> None:
    assert executed(body, register)(*(arguments.get(name, 0) for name in REGISTERS)) == expected


@pytest.mark.parametrize(
    "body",
    [
        "div.s64 %rd3, %rd1, %rd2;",
        "add.cc.s32 %r3, %r1, %r2;",
        "add.f32 %r3, %r1, %r2;",
        "add.s64 %rd3, %r1, %rd2;",
        "add.s32 %rd3, %r1, %r2;",
        "add.s64 %rd3, %rd1, %rd77;",
        "shl.s32 %r3, %r1, 1;",
        "setp.lt.and.s32 %p1, %r1, %r2, %p2;",
        "setp.lt.b32 %p1, %r1, %r2;",
        "setp.equ.s32 %p1, %r1, %r2;",
        "cvt.sat.s8.s32 %r3, %r1;",
        "cvt.rn.f32.s32 %r3, %r1;",
        "ld.global.u32 %r3, [%rd1];",
        "ld.param.u64 %rd3, [kernel_param_4];",
        "ld.param.u16 %rs5, [kernel_param_4+2];",
        "lop3.b32 %r3, %r1, %r2, 5, 0x80;",
        "prmt.b32 %r3, %r1, %r2, 8;",
        "mad.lo.s32 %r3, %r1, %r2, %r1;",
        "mov.b64 %rd3, {%r1, %r2};",
        "mov.u64 %rd3, other;",
        "st.param.b32 [func_retval0+0], %r1;",
        "st.param.b64 [func_retval0+8], %rd1;",
        "bra.uni $L__BB0_1;",
        "@%p1 bra $L__BB0_1;",
        "$L__BB0_1: add.s64 %rd3, %rd1, 1;",
        "call.uni (retval0), helper, (param0);",
        "ret;",
        ".reg .b64 %r<9>;",
        ".reg .b128 %rq<9>;",
    ],
)
def test_what_is_not_understood_is_refused(body: str) -> None:
    with pytest.raises(UnsupportedCode):
        executed(body, "%rd1")


def test_functions_without_a_result_are_refused() -> None:
    text = module("", "%rd1")
    for broken in (
        text.replace("st.param.b64 	[func_retval0+0], %rd99;", ""),
        text.replace("ret;", ""),
        text.replace("(.param .b64 func_retval0)", ""),
        text + text,
    ):
        with pytest.raises(UnsupportedCode):
            ptx.execute(broken, [z3.BitVec(f"a{i}", width) for i, width in enumerate(WIDTHS)])


@needs_numba_cuda
@pytest.mark.parametrize("seed", range(24))
def test_random_programs_compute_what_the_cpu_computes(seed: int) -> None:
    function, symbols = programs.program(seed), programs.symbols()
    compiled = llvm.compiled(function, programs.TYPES)
    execution = ptx.machine(function, programs.TYPES, symbols)
    for values in programs.inputs(seed, 40):
        expected = programs.reference(function, values)
        if expected is not None:
            assert programs.evaluate(execution, symbols, values) == expected == compiled(*values), values


def proved(machine: translation.Machine) -> Outcome:
    """Return the outcome of a proof that the compiled encoder from float32 to e2m1 is right."""
    (kernel,) = (
        family.kernels[0] for family in translation.families() if family.name == "encode/float32/e2m1/rne/saturate"
    )
    return translation.check(Family("one", (kernel,), "fast", translation.QUICK), machine)


@needs_numba_cuda
def test_a_kernel_that_is_compiled_wrongly_is_refuted_with_a_witness() -> None:
    right, wrong = (
        make_encode(FLOATS["float32"], ELEMENTS["e2m1"], rounding, Overflow.SATURATE)
        for rounding in (Rounding.RNE, Rounding.RNA)
    )
    assert proved(ptx.machine).verdict == "proved"
    outcome = proved(lambda function, types, arguments: ptx.machine(wrong, types, arguments))
    assert outcome.verdict == "refuted"
    x, scale, random = (int(found, 16) for found in re.findall(r" = (0x[0-9a-f]+)", outcome.detail))
    assert right(x - ((x >> 31) << 32), scale, random) != wrong(x - ((x >> 31) << 32), scale, random)


@needs_numba_cuda
@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"(setp\.eq\.s16 \s*%p\d+, %rs\d+), 255;", r"\1, 254;"),
        (r"ld\.param\.u8", "ld.param.s8"),
        (r"shr\.u64", "shl.b64"),
        (r", 2147483647;", ", 2147483646;"),
        (r"(selp\.b64 \s*%\w+), (%\w+), (%\w+), ", r"\1, \3, \2, "),
    ],
)
def test_a_miscompilation_is_refuted(pattern: str, replacement: str) -> None:
    def machine(function: Any, types: tuple[str, ...], arguments: Any) -> Execution:
        text = ptx.compile_to_ptx(function, types)
        changed = re.sub(pattern, replacement, text, count=1)
        assert changed != text
        return ptx.execute(changed, arguments)

    assert proved(machine).verdict == "refuted"


@needs_numba_cuda
def test_compiling_leaves_numba_cuda_as_it_was() -> None:
    from numba.cuda import dispatcher

    before = dispatcher.get_current_device
    ptx.compile_to_ptx(programs.program(0), programs.TYPES)
    assert dispatcher.get_current_device is before


@needs_numba_cuda
def test_the_theorems_have_names_of_their_own_and_cover_the_float32_encoders() -> None:
    found = {theorem.name: theorem for theorem in ptx.theorems()}
    assert len(found) == len(ptx.theorems())
    for element in ELEMENTS:
        for rounding in Rounding:
            assert found[f"ptx/encode/float32/{element}/{rounding}/saturate"].tier == "fast"


def test_a_missing_numba_cuda_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install -e "\.\[cuda\]"'):
        ptx.theorems()
