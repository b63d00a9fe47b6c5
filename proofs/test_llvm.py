"""Tests that the executor of LLVM IR agrees with LLVM and refutes wrongly translated kernels."""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import llvmlite.binding as llvm_binding
import numpy as np
import pytest
import z3

from mxnum.definition.convert import make_encode
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import Overflow, Rounding
from mxnum.prove import ir
from mxnum.prove.execution import Execution, UnsupportedCode
from proofs.machines import llvm, programs, translation
from proofs.machines.translation import Family, Kernel
from proofs.theorem import Outcome

FLOAT32, E2M1 = FLOATS["float32"], ELEMENTS["e2m1"]


def module(body: str, width: int = 8, result: str = "i8", arguments: str = "abc") -> str:
    """Return the IR of a function with numba's calling convention; its result is %r as an i64."""
    parameters = ", ".join(f"i{width} %{name}" for name in arguments)
    extend = "" if result == "i64" else f"  %wide = sext {result} %r to i64\n"
    stored = "%r" if result == "i64" else "%wide"
    return (
        f"define i32 @f(ptr %retptr, ptr %excinfo, {parameters}) {{\nentry:\n{body}\n{extend}"
        f"  store i64 {stored}, ptr %retptr\n  ret i32 0\n}}\n"
    )


def executed(text: str, width: int = 8, arguments: str = "abc") -> Callable[..., int | None]:
    """Return a function that executes a module's @f on concrete values.

    The function returns None for poison or undefined behaviour.
    """
    symbols = [z3.BitVec(name, width) for name in arguments]
    execution = ir.execute(ir.parse(text, "f"), symbols)
    return lambda *values: programs.evaluate(execution, symbols, values)


def native(text: str, width: int = 8, arguments: str = "abc") -> Callable[..., int]:
    """Return a function that calls the module's @f, compiled by LLVM without optimisation."""
    llvm_binding.initialize_native_target()
    llvm_binding.initialize_native_asmprinter()
    machine = llvm_binding.Target.from_default_triple().create_target_machine(opt=0)
    engine = llvm_binding.create_mcjit_compiler(llvm_binding.parse_assembly(text), machine)
    engine.finalize_object()
    integer = {8: ctypes.c_int8, 16: ctypes.c_int16, 32: ctypes.c_int32}[width]
    prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[integer for _ in arguments])
    function = prototype(engine.get_function_address("f"))

    def call(*values: int) -> int:
        assert engine is not None  # the engine owns the compiled code, so keep a reference to it
        result = ctypes.c_int64()
        assert function(ctypes.addressof(result), None, *values) == 0
        return result.value

    return call


CORNERS = (-128, -127, -9, -8, -1, 0, 1, 2, 3, 7, 8, 9, 63, 64, 100, 127)
RELATIONS = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
INSTRUCTIONS = {
    **{op: f"%r = {op} i8 %a, %b" for op in ("add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr")},
    **{f"icmp {p}": f"%p = icmp {p} i8 %a, %b\n  %r = zext i1 %p to i8" for p in RELATIONS},
    **{f: f"%r = call i8 @llvm.{f}.i8(i8 %a, i8 %b)" for f in ("umin", "umax", "smin", "smax", "usub.sat")},
    **{f: f"%r = call i8 @llvm.{f}.i8.i8(i8 %a, i8 %b)" for f in ("scmp", "ucmp")},
    "abs": "%r = tail call noundef i8 @llvm.abs.i8(i8 %a, i1 false)",
    "ctlz": "%r = tail call range(i8 0, 9) i8 @llvm.ctlz.i8(i8 %a, i1 false)",
    "cttz": "%r = tail call range(i8 0, 9) i8 @llvm.cttz.i8(i8 %a, i1 false)",
    "ctpop": "%r = call i8 @llvm.ctpop.i8(i8 %a)",
    "fshl": "%r = call i8 @llvm.fshl.i8(i8 %a, i8 %b, i8 %c)",
    "fshr": "%r = call i8 @llvm.fshr.i8(i8 %a, i8 %b, i8 %c)",
    "trunc": "%t = trunc i8 %a to i5\n  %r = sext i5 %t to i8",
    "zext": "%t = trunc i8 %a to i5\n  %r = zext i5 %t to i8",
    "bitcast": "%r = bitcast i8 -77 to i8",
    "select": "%p = icmp slt i8 %a, %b\n  %r = select i1 %p, i8 %c, i8 17",
    "select true": "%r = select i1 true, i8 %b, i8 %c",
    "freeze": "%r = freeze i8 %a",
    "branch": """%p = icmp slt i8 %a, %b
  br i1 %p, label %left, label %right
left:                                             ; preds = %entry
  %x = add i8 %a, %c
  br label %join
right:                                            ; preds = %entry
  %q = icmp eq i8 %c, 1
  br i1 %q, label %join, label %far, !prof !0
far:
  %y = xor i8 %a, 85
  br label %join
join:                                             ; preds = %far, %right, %left
  %r = phi i8 [ %x, %left ], [ %b, %right ], [ %y, %far ]""",
}


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_every_instruction_does_what_llvm_does(name: str) -> None:
    declarations = "\n".join(
        f"declare i8 @llvm.{f}.i8({types})"
        for f, types in (
            *((f, "i8, i8") for f in ("umin", "umax", "smin", "smax", "usub.sat")),
            *((f, "i8, i8") for f in ("scmp.i8", "ucmp.i8")),
            *((f, "i8, i1") for f in ("abs", "ctlz")),
            *((f, "i8, i8, i8") for f in ("fshl", "fshr")),
        )
    )
    instruction = INSTRUCTIONS[name]
    text = module("  " + instruction) + declarations + '\n!0 = !{!"branch_weights", i32 1, i32 99}\n'
    ours, theirs = executed(text), native(text)
    # fshl and fshr shift by c modulo 8. Most other instructions do not read c.
    thirds = (1,) if "%c" not in instruction and "shl" not in name and "shr" not in name else (-5, 1)
    if name in ("fshl", "fshr"):
        thirds = (-128, -9, -1, 0, 1, 3, 7, 8)
    compared = 0
    for values in itertools.product(CORNERS, CORNERS, thirds):
        result = ours(*values)
        if name in ("shl", "lshr", "ashr") and not 0 <= values[1] < 8:
            assert result is None
        else:
            assert result == theirs(*values), values
            compared += 1
    assert compared >= 100


#: Cases (instruction, value of a, value of b, True if the result is poison).
POISON = [
    ("%r = add nsw i8 %a, %b", 100, 27, False),
    ("%r = add nsw i8 %a, %b", 100, 28, True),
    ("%r = add nuw i8 %a, %b", -1, 0, False),
    ("%r = add nuw i8 %a, %b", -1, 1, True),
    ("%r = add nuw nsw i8 %a, %b", 127, 1, True),
    ("%r = sub nsw i8 %a, %b", -128, 1, True),
    ("%r = sub nsw i8 %a, %b", -127, 1, False),
    ("%r = sub nuw i8 %a, %b", 3, 4, True),
    ("%r = sub nuw i8 %a, %b", -1, 127, False),
    ("%r = mul nsw i8 %a, %b", 16, 8, True),
    ("%r = mul nsw i8 %a, %b", 16, -8, False),
    ("%r = mul nuw i8 %a, %b", 16, 16, True),
    ("%r = mul nuw i8 %a, %b", 17, 15, False),
    ("%r = shl nsw i8 %a, %b", 32, 2, True),
    ("%r = shl nsw i8 %a, %b", -32, 2, False),
    ("%r = shl nuw i8 %a, %b", 64, 2, True),
    ("%r = shl nuw i8 %a, %b", 64, 1, False),
    ("%r = shl i8 %a, %b", 0, 8, True),
    ("%r = shl i8 %a, %b", 1, 7, False),
    ("%r = lshr exact i8 %a, %b", 12, 2, False),
    ("%r = lshr exact i8 %a, %b", 12, 3, True),
    ("%r = ashr exact i8 %a, %b", -12, 2, False),
    ("%r = ashr exact i8 %a, %b", -12, 3, True),
    ("%r = or disjoint i8 %a, %b", 5, 10, False),
    ("%r = or disjoint i8 %a, %b", 5, 4, True),
    ("%t = trunc nsw i8 %a to i4\n  %r = sext i4 %t to i8", -8, 0, False),
    ("%t = trunc nsw i8 %a to i4\n  %r = sext i4 %t to i8", 8, 0, True),
    ("%t = trunc nuw i8 %a to i4\n  %r = sext i4 %t to i8", 15, 0, False),
    ("%t = trunc nuw i8 %a to i4\n  %r = sext i4 %t to i8", -8, 0, True),
    ("%t = trunc i8 %a to i4\n  %r = zext nneg i4 %t to i8", 7, 0, False),
    ("%t = trunc i8 %a to i4\n  %r = zext nneg i4 %t to i8", 8, 0, True),
    ("%p = icmp samesign ult i8 %a, %b\n  %r = zext i1 %p to i8", -1, -2, False),
    ("%p = icmp samesign ult i8 %a, %b\n  %r = zext i1 %p to i8", -1, 2, True),
    ("%r = call i8 @llvm.abs.i8(i8 %a, i1 true)", -128, 0, True),
    ("%r = call i8 @llvm.abs.i8(i8 %a, i1 true)", -127, 0, False),
    ("%r = call i8 @llvm.ctlz.i8(i8 %a, i1 true)", 0, 0, True),
    ("%r = call range(i8 0, 4) i8 @llvm.umin.i8(i8 %a, i8 %b)", 3, 9, False),
    ("%r = call range(i8 0, 4) i8 @llvm.umin.i8(i8 %a, i8 %b)", 4, 9, True),
    ("%r = call range(i8 -1, 2) i8 @llvm.umin.i8(i8 %a, i8 %b)", -1, -1, False),
    # Poison does not spread through `freeze`, or from the operand that `select` does not choose.
    ("%t = add nsw i8 %a, %b\n  %r = and i8 %t, 0", 127, 1, True),
    ("%t = add nsw i8 %a, %b\n  %p = icmp eq i8 %b, 0\n  %r = select i1 %p, i8 %t, i8 7", 127, 1, False),
    ("%t = add nsw i8 %a, %b\n  %p = icmp eq i8 %b, 1\n  %r = select i1 %p, i8 %t, i8 7", 127, 1, True),
    ("%t = add nsw i8 %a, %b\n  %p = icmp eq i8 %t, 1\n  %r = select i1 %p, i8 7, i8 7", 127, 1, True),
    ("%t = add nsw i8 %a, %b\n  %u = freeze i8 %t\n  %r = and i8 %u, 0", 127, 1, False),
    ("%r = and i8 undef, 0", 0, 0, True),
    ("%r = and i8 %a, poison", 0, 0, True),
    # Undefined behaviour matters only if control reaches it.
    ("%p = icmp eq i8 %a, 3\n  call void @llvm.assume(i1 %p)\n  %r = add i8 %a, %b", 3, 1, False),
    ("%p = icmp eq i8 %a, 3\n  call void @llvm.assume(i1 %p)\n  %r = add i8 %a, %b", 4, 1, True),
    ("%p = icmp eq i8 %a, 3\n  br i1 %p, label %x, label %y\nx:\n  unreachable\ny:\n  %r = add i8 %a, %b", 4, 1, False),
    ("%p = icmp eq i8 %a, 3\n  br i1 %p, label %x, label %y\nx:\n  unreachable\ny:\n  %r = add i8 %a, %b", 3, 1, True),
    (
        "%t = add nsw i8 %a, %b\n  %p = icmp eq i8 %t, 3\n  br i1 %p, label %x, label %y\nx:\n  br label %y\ny:\n"
        "  %r = phi i8 [ 1, %entry ], [ 1, %x ]",
        127,
        1,
        True,
    ),
    (
        "%t = add nsw i8 %a, %b\n  %p = icmp eq i8 %b, 1\n  br i1 %p, label %x, label %y\nx:\n  br label %y\ny:\n"
        "  %r = phi i8 [ %t, %entry ], [ 1, %x ]",
        127,
        1,
        False,
    ),
]


@pytest.mark.parametrize(("body", "a", "b", "poison"), POISON)
def test_poison_is_found_where_the_language_reference_has_it(body: str, a: int, b: int, poison: bool) -> None:
    assert (executed(module("  " + body))(a, b, 0) is None) == poison


def test_the_range_of_a_parameter_is_an_obligation() -> None:
    text = module("  %r = add i8 %a, 0").replace("i8 %a,", "i8 noundef range(i8 0, 12) %a,", 1)
    assert executed(text)(11, 0, 0) == 11
    assert executed(text)(12, 0, 0) is None


def test_a_path_that_returns_without_a_result_is_not_accepted() -> None:
    text = module("  %p = icmp eq i8 %a, 1\n  br i1 %p, label %x, label %y\nx:\n  ret i32 0\ny:\n  %r = add i8 %b, %c")
    assert executed(text)(0, 2, 3) == 5
    assert executed(text)(1, 2, 3) is None


@pytest.mark.parametrize(
    "body",
    [
        "%r = udiv i8 %a, %b",
        "%r = load i8, ptr @table",
        "%r = call i8 @llvm.bitreverse.i8(i8 %a)",
        "%r = call i8 @other(i8 %a)",
        "%r = tail call i8 @llvm.umin.i8(i8 %a, i8 %b, i8 %c)",
        "%r = call i8 @llvm.umin.i8(i8 %a, i8 %b), !range !0",
        "%r = add foo i8 %a, %b",
        "%r = add disjoint i8 %a, %b",
        "%r = icmp weird i8 %a, %b",
        "%r = zext nsw i8 %a to i16",
        "%r = add i8 %a, %missing",
        "%r = add i16 %a, %b",
        "%r = add <2 x i8> %a, %b",
        "%r = fadd float %a, %b",
        "store i8 %a, ptr @elsewhere\n  %r = add i8 %a, %b",
        "br label %entry",
        "switch i8 %a, label %x [ i8 1, label %x ]\nx:\n  %r = add i8 %a, %b",
        "ret i32 1\nx:\n  %r = add i8 %a, %b",
        "%p = icmp eq i8 %a, 3\n  br i1 %p, label %x, label %x\nx:\n  %r = add i8 %a, %b",
    ],
)
def test_what_is_not_understood_is_refused(body: str) -> None:
    with pytest.raises(UnsupportedCode):
        executed(module("  " + body))


def test_other_calling_conventions_are_refused() -> None:
    with pytest.raises(UnsupportedCode, match="calling convention"):
        ir.parse("define i64 @f(i64 %a, i64 %b) {\nentry:\n  ret i64 %a\n}\n", "f")
    with pytest.raises(UnsupportedCode, match="does not define"):
        ir.parse(module("  %r = add i8 %a, %b"), "g")


#: The compiled programs of these seeds contain every instruction that occurs in the compiled
#: programs of seeds 0 to 23.
SEEDS = (0, 1, 3, 4, 12, 15, 21, 22, 23)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_compute_what_the_compiled_function_computes(seed: int) -> None:
    function, symbols = programs.program(seed), programs.symbols()
    compiled = llvm.compiled(function, programs.TYPES)
    execution = llvm.machine(function, programs.TYPES, symbols)
    for values in programs.inputs(seed, 40):
        expected = programs.reference(function, values)
        if expected is not None:
            assert programs.evaluate(execution, symbols, values) == expected == compiled(*values), values


def test_random_programs_are_mostly_defined() -> None:
    answers = [programs.reference(programs.program(s), values) for s in range(12) for values in programs.inputs(s, 40)]
    assert 0.6 < sum(answer is not None for answer in answers) / len(answers) < 1


numpy: Any = np  # hide the type from mypy, which does not know the types that numba infers


def casts(a: Any, b: Any, c: Any) -> Any:
    low = numpy.int64(numpy.uint32(a)) + numpy.int64(numpy.int8(b))
    return max(low, numpy.int64(numpy.int16(b))) ^ abs(numpy.int64(a)) ^ min(numpy.int64(c), 9)


def saturated(a: Any, b: Any, c: Any) -> Any:
    top, other = numpy.uint32(a), numpy.uint32(b)
    return numpy.int64(max(top, other) - min(top, other)) + numpy.int64(numpy.uint16(max(numpy.int32(a), 0)))


def branches(a: Any, b: Any, c: Any) -> Any:
    if a < b:
        return numpy.int64(a) * 3 if c > 7 else b - (b >> 1)
    return numpy.int64(-1) if b < -5 else numpy.int64(c) << 3


@pytest.mark.parametrize("function", [casts, saturated, branches])
def test_casts_minima_and_branches_compute_what_the_compiled_function_computes(function: Any) -> None:
    symbols = programs.symbols()
    compiled = llvm.compiled(function, programs.TYPES)
    execution = llvm.machine(function, programs.TYPES, symbols)
    for values in programs.inputs(5, 200):
        assert programs.evaluate(execution, symbols, values) == compiled(*values), values


def encoder(rounding: Rounding) -> Kernel:
    """Return the encoder from float32 to e2m1 with the given rounding, as loops call it."""
    (found,) = [
        kernel
        for family in translation.families()
        if family.name == f"encode/float32/e2m1/{rounding}/saturate"
        for kernel in family.kernels
    ]
    return found


def proved(kernel: Kernel, machine: translation.Machine) -> Outcome:
    """Return the outcome of validating a kernel's translation."""
    return translation.check(Family("one", (kernel,), "fast", translation.QUICK), machine)


def test_a_kernel_that_is_compiled_wrongly_is_refuted_with_a_witness() -> None:
    right = encoder(Rounding.RNE)
    wrong = make_encode(FLOAT32, E2M1, Rounding.RNA, Overflow.SATURATE)
    assert proved(right, llvm.machine).verdict == "proved"
    outcome = proved(right, lambda function, types, arguments: llvm.machine(wrong, types, arguments))
    assert outcome.verdict == "refuted"
    x, scale, random = (int(found, 16) for found in re.findall(r" = (0x[0-9a-f]+)", outcome.detail))
    assert right.make()(x - ((x >> 31) << 32), scale, random) != wrong(x - ((x >> 31) << 32), scale, random)


def changed(pattern: str, replacement: str) -> translation.Machine:
    """Return a machine that replaces the first match in a kernel's IR before it executes the IR."""

    def machine(function: Any, types: tuple[str, ...], arguments: Iterable[z3.BitVecRef]) -> Execution:
        text, name = llvm.compile_to_ir(function, types)
        start = text.index("common.ret:")
        text = text[:start] + re.sub(pattern, replacement, text[start:], count=1)
        return ir.execute(ir.parse(text, name), list(arguments))

    return machine


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"llvm\.smin", "llvm.smax"),
        (r"icmp eq i8 %arg.scale, -1", "icmp eq i8 %arg.scale, -2"),
        (r", 2147483647", ", 2147483646"),
        (r"zext i8 %arg.scale", "sext i8 %arg.scale"),
        # Each case below adds a flag that makes the result poison for some inputs.
        (r"sub nsw i64 (%\S+), (%\S+)", r"sub nuw nsw i64 \1, \2"),
        (r"= lshr i64", "= lshr exact i64"),
        (r"zext i8 %arg.scale", "zext nneg i8 %arg.scale"),
    ],
)
def test_a_miscompilation_is_refuted(pattern: str, replacement: str) -> None:
    outcome = proved(encoder(Rounding.RNE), changed(pattern, replacement))
    assert outcome.verdict == "refuted", outcome


def test_code_that_is_not_understood_is_an_error_and_not_a_proof() -> None:
    outcome = proved(encoder(Rounding.RNE), changed(r"shl nuw nsw", "udiv"))
    assert outcome.verdict == "error"
    assert "udiv" in outcome.detail


def test_an_unsigned_result_is_refused() -> None:
    def unsigned(a: Any, b: Any, c: Any) -> Any:
        return np.uint64(b)

    with pytest.raises(UnsupportedCode, match="uint64"):
        llvm.compile_to_ir(unsigned, programs.TYPES)


def test_the_theorems_cover_every_float32_encoder_in_the_fast_tier() -> None:
    found = {theorem.name: theorem for theorem in llvm.theorems()}
    assert len(found) == len(llvm.theorems())
    for element, rounding in itertools.product(ELEMENTS.values(), Rounding):
        for overflow in Overflow:
            if overflow == Overflow.SATURATE or element.specials != "none":
                theorem = found[f"llvm/encode/float32/{element.name}/{rounding}/{overflow}"]
                assert theorem.tier == "fast"
                assert theorem.hypotheses == (
                    "x is any integer in -2**31..2**31-1, passed as int32",
                    "scale is any integer in 0..2**8-1, passed as uint8",
                    "random is any integer in 0..2**30-1, passed as int64",
                )
    everything = {name for theorem in found.values() for name in theorem.kernels}
    for rounding in Rounding:
        assert partial(make_encode, FLOATS["float64"], E2M1, rounding, Overflow.SATURATE)().__name__ in everything
