"""Tests that device functions in PTX are proved or refuted."""

from __future__ import annotations

import pytest

from mxnum.conformance import prove

#: A function that decodes E2M1, with a separate branch for subnormal numbers.
DECODE = """
.visible .func (.param .b32 func_retval0) decode(
    .param .b32 decode_param_0
)
{
    .reg .pred %p<4>;
    .reg .f32 %f<4>;
    .reg .b32 %r<12>;

    ld.param.u32 %r1, [decode_param_0];
    shl.b32 %r2, %r1, 28;
    and.b32 %r3, %r2, -2147483648;
    shr.u32 %r4, %r1, 1;
    and.b32 %r5, %r4, 3;
    and.b32 %r6, %r1, 1;
    setp.eq.s32 %p1, %r5, 0;
    @%p1 bra $L__BB0_2;

    mad.lo.s32 %r7, %r5, 8388608, 1056964608;
    shl.b32 %r8, %r6, 22;
    or.b32 %r9, %r7, %r8;
    bra.uni $L__BB0_3;

$L__BB0_2:
    cvt.rn.f32.u32 %f1, %r6;
    mul.rn.f32 %f2, %f1, 0f3F000000;
    mov.b32 %r9, %f2;

$L__BB0_3:
    or.b32 %r10, %r9, %r3;
    st.param.b32 [func_retval0+0], %r10;
    ret;
}
"""


def written(folder, text=DECODE):
    path = folder / "f.ptx"
    path.write_text(text)
    return path


def test_branches_and_floats(tmp_path):
    assert prove(written(tmp_path), "decode", "mxfp4_e2m1")


@pytest.mark.parametrize(
    ("right", "wrong", "inputs"),
    [
        ("0f3F000000", "0f3F000001", {1, 9}),
        ("mov.b32 %r9, %f2;", "@!%p1 mov.b32 %r9, %f2;", {0, 1, 8, 9}),
        ("shl.b32 %r8, %r6, 22", "shl.b32 %r8, %r6, 21", {3, 5, 7, 11, 13, 15}),
    ],
)
def test_a_mistake_is_refuted(tmp_path, right, wrong, inputs):
    text = DECODE.replace(right, wrong)
    assert text != DECODE
    refuted = prove(written(tmp_path, text), "decode", "mxfp4_e2m1")
    assert refuted.verdict == "refuted"
    assert refuted.counterexample.inputs["code"] in inputs


def test_a_predicate_guards_a_statement(tmp_path):
    guarded = "mov.u32 %r9, 7;\n    @%p1 mov.b32 %r9, %f2;"
    assert prove(written(tmp_path, DECODE.replace("mov.b32 %r9, %f2;", guarded)), "decode", "mxfp4_e2m1")


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("mul.rn.f32", "mul.f32", "in line 26 of f.ptx: 'mul.f32 %f2, %f1, 0f3F000000': no such operation on floats"),
        ("bra.uni $L__BB0_3", "bra.uni $L__BB0_3;\n$L__BB0_2:\n    bra.uni $L__BB0_2", "a loop"),
        ("mad.lo.s32 %r7", "vadd.s32 %r7", "vadd.s32 .*: no such instruction"),
    ],
)
def test_what_cannot_be_read_names_the_line(tmp_path, right, wrong, message):
    with pytest.raises(ValueError, match=message):
        prove(written(tmp_path, DECODE.replace(right, wrong, 1)), "decode", "mxfp4_e2m1")


def test_the_function_must_be_named_where_there_are_several(tmp_path):
    path = written(tmp_path, DECODE + DECODE.replace("decode", "other"))
    assert prove(path, "decode", "mxfp4_e2m1", function="other")
    with pytest.raises(ValueError, match=r"functions of f\.ptx: decode or other"):
        prove(path, "decode", "mxfp4_e2m1")
