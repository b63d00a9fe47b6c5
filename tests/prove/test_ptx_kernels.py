"""Tests that `prove` proves correct PTX kernels and refutes kernels with a mistake.

A proof covers every thread that stores a number.
"""

from __future__ import annotations

import pytest

from mxnum.conformance import prove

#: PTX, without comments, to which Triton 3.9 compiles this kernel for compute capability 8.0:
#:
#:     code = tl.load(codes + at, mask=at < n, other=0).to(tl.int32)
#:     sign, step, half = code >> 3, (code >> 1) & 3, code & 1
#:     magnitude = tl.where(step == 0, half * 0x3F000000, ((step + 126) << 23) | (half << 22))
#:     tl.store(values + at, magnitude | (sign << 31), mask=at < n)
DECODE = r"""
.visible .entry decode(
    .param .u64 .ptr .global .align 1 decode_param_0,
    .param .u64 .ptr .global .align 1 decode_param_1,
    .param .u32 decode_param_2,
    .param .u64 .ptr .global .align 1 decode_param_3,
    .param .u64 .ptr .global .align 1 decode_param_4
)
.reqntid 128
{
    .reg .pred  %p<3>;
    .reg .b16   %rs<3>;
    .reg .b32   %r<20>;
    .reg .b64   %rd<6>;
$L__func_begin0:
    ld.param.b64    %rd3, [decode_param_0];
    ld.param.b64    %rd4, [decode_param_1];
$L__tmp0:
    mov.u32     %r2, %ctaid.x;
    shl.b32     %r3, %r2, 7;
    ld.param.b32    %r4, [decode_param_2];
    mov.u32     %r5, %tid.x;
    and.b32     %r6, %r5, 127;
    or.b32  %r7, %r3, %r6;
    setp.lt.s32     %p1, %r7, %r4;
    cvt.s64.s32     %rd5, %r7;
    add.s64     %rd1, %rd3, %rd5;
    mov.u16 %rs1, 0x0;
    @%p1 ld.global.b8 { %rs1 }, [ %rd1 + 0 ];
    cvt.u32.u16     %r8, %rs1;
    shr.u16     %rs2, %rs1, 1;
    cvt.u32.u16     %r9, %rs2;
    and.b32     %r10, %r9, 3;
    and.b32     %r11, %r8, 1;
    setp.eq.b32     %p2, %r10, 0;
    mul.lo.s32  %r12, %r11, 1056964608;
    shl.b32     %r13, %r10, 23;
    shl.b32     %r14, %r11, 22;
    or.b32  %r15, %r13, %r14;
    add.s32     %r16, %r15, 1056964608;
    selp.b32    %r17, %r12, %r16, %p2;
    mad.wide.s32    %rd2, %r7, 4, %rd4;
    shl.b32     %r18, %r8, 28;
    and.b32     %r19, %r18, -2147483648;
    or.b32  %r1, %r17, %r19;
    @%p1 st.global.b32 [ %rd2 + 0 ], { %r1 };
    ret;
$L__tmp1:
$L__func_end0:
}
"""

#: The PTX of Triton's own conversion of E5M2: ``tl.load(codes + at, mask=at < n).to(tl.float32)``.
FROM_E5M2 = r"""
.visible .entry up(
    .param .u64 .ptr .global .align 1 up_param_0,
    .param .u64 .ptr .global .align 1 up_param_1,
    .param .u32 up_param_2,
    .param .u64 .ptr .global .align 1 up_param_3,
    .param .u64 .ptr .global .align 1 up_param_4
)
.reqntid 128
{
    .reg .pred  %p<2>;
    .reg .b16   %rs<3>;
    .reg .b32   %r<17>;
    .reg .b64   %rd<6>;
$L__func_begin0:
    ld.param.b64    %rd3, [up_param_0];
    ld.param.b64    %rd4, [up_param_1];
$L__tmp0:
    mov.u32     %r5, %ctaid.x;
    shl.b32     %r6, %r5, 7;
    ld.param.b32    %r7, [up_param_2];
    mov.u32     %r8, %tid.x;
    and.b32     %r9, %r8, 127;
    or.b32  %r10, %r6, %r9;
    setp.lt.s32     %p1, %r10, %r7;
    cvt.s64.s32     %rd5, %r10;
    add.s64     %rd1, %rd3, %rd5;
    mov.u16 %rs1, 0x0;
    @%p1 ld.global.b8 { %rs1 }, [ %rd1 + 0 ];
    mad.wide.s32    %rd2, %r10, 4, %rd4;
    cvt.u32.u16     %r11, %rs1;
    prmt.b32    %r12, %r11, %r13, 0x3340U;
    prmt.b32    %r14, %r15, %r16, 0x3340U;
    prmt.b32    %r3, %r12, %r14, 0x5410U;
    {
prmt.b32 %r1, 0, %r3, 0x5140;
    prmt.b32 %r2, 0, %r3, 0x7362;
    }
    mov.b32     {%rs2, _}, %r1;
    cvt.f32.f16     %r4, %rs2;
    @%p1 st.global.b32 [ %rd2 + 0 ], { %r4 };
    ret;
$L__tmp1:
$L__func_end0:
}
"""

#: A kernel in nvcc's style; it adds its last parameter to each loaded number.
SCALED = """
.visible .entry scaled(
    .param .u64 scaled_param_0,
    .param .u64 scaled_param_1,
    .param .u32 scaled_param_2,
    .param .u32 scaled_param_3
)
{
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [scaled_param_0];
    ld.param.u64 %rd2, [scaled_param_1];
    ld.param.u32 %r1, [scaled_param_2];
    ld.param.u32 %r2, [scaled_param_3];
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r6, %r1;
    @%p1 bra $L__BB0_2;
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mul.wide.u32 %rd5, %r6, 4;
    add.s64 %rd6, %rd3, %rd5;
    ld.global.nc.u32 %r7, [%rd6];
    add.s64 %rd7, %rd4, %rd5;
    add.s32 %r8, %r7, %r2;
    st.global.u32 [%rd7], %r8;
$L__BB0_2:
    ret;
}
"""


def written(folder, text):
    path = folder / "f.ptx"
    path.write_text(text)
    return path


def test_a_kernel_of_triton(tmp_path):
    proof = prove(written(tmp_path, DECODE), "decode", "mxfp4_e2m1")
    assert proof
    assert "every thread that stores a number" in str(proof)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("1056964608", "1056964609"),
        ("@%p1 st.global", "@%p2 st.global"),  # Now the condition of the store depends on the loaded number.
        ("@%p1 st.global", "st.global"),  # Now the store is unconditional, unlike the load.
    ],
)
def test_a_mistake_in_a_kernel_is_refuted(tmp_path, right, wrong):
    text = DECODE.replace(right, wrong)
    assert text != DECODE
    assert prove(written(tmp_path, text), "decode", "mxfp4_e2m1").verdict == "refuted"


def test_tritons_conversion_of_e5m2(tmp_path):
    path = written(tmp_path, FROM_E5M2)
    assert prove(path, "decode", "mxfp8_e5m2", accept=["nan_code"])
    refuted = prove(path, "decode", "mxfp8_e5m2")
    assert refuted.counterexample.inputs["code"] & 0x7F > 0x7C
    wrong = prove(written(tmp_path, FROM_E5M2.replace("0x5140", "0x5150")), "decode", "mxfp8_e5m2")
    assert wrong.verdict == "refuted"


def test_parameter_may_be_any_number_unless_ports_sets_it(tmp_path):
    """Check a kernel that adds its last parameter to each code.

    The kernel is correct only if this parameter is 0.
    """
    path, settings = written(tmp_path, SCALED), {"source": "e2m1", "assume": ["nonnegative"]}
    assert prove(path, "encode", "mxfp4_e2m1", ports={"param_3": 0}, **settings)
    assert prove(path, "encode", "mxfp4_e2m1", ports={"param_3": 1}, **settings).verdict == "refuted"
    assert prove(path, "encode", "mxfp4_e2m1", **settings).verdict == "refuted"


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (
            "st.global.u32 [%rd7], %r8;",
            "st.global.u32 [%rd7], %r8;\n st.global.u32 [%rd7+4], %r8;",
            "the thread stores more than one number through",
        ),
        ("add.s32 %r8", "ld.global.u32 %r8, [%rd6+4];\n add.s32 %r8", "more than one number through scaled_param_0"),
        (
            "ld.global.nc.u32 %r7, [%rd6]",
            "ld.global.v2.u32 {%r7, %r8}, [%rd6]",
            "ld.global.v2.u32 .*: no such instruction",
        ),
        ("st.global.u32 [%rd7], %r8;", "", "in line 2 of f.ptx: the kernel stores nothing"),
        ("[%rd7]", "[%rd5]", "must be a pointer of the kernel plus"),
    ],
)
def test_what_cannot_be_read_of_a_kernel(tmp_path, right, wrong, message):
    text = SCALED.replace(right, wrong)
    assert text != SCALED
    with pytest.raises(ValueError, match=message) as raised:
        prove(written(tmp_path, text), "decode", "mxfp8_e4m3")
    assert "\n" not in str(raised.value)
