from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance import ConformanceError, check, check_stochastic, in_place
from mxnum.conformance.bits import fits, fitted, unpacked
from mxnum.conformance.calling import Implementation, both, read_element_codes, read_floats, read_scale_codes
from mxnum.conformance.cases.batches import cases
from mxnum.conformance.operations import make_task
from mxnum.formats import FLOATS
from mxnum.interop.swizzle import swizzle_scales

TASK = make_task("quantize", "mxfp4_e2m1")


def test_answers_are_copied():
    """Check that answers are copied, because a kernel may return the same array in each call."""
    task = make_task("encode", "mxfp4_e2m1")
    inputs = {name: column[:5] for name, column in next(cases(task)).items()}
    before = inputs["x"].copy()
    kept = np.zeros(5, np.uint8)

    def kernel(x):
        x[:] = 3
        return kept

    answers = Implementation(kernel).answers(task, inputs)
    kept[:] = 9
    assert answers["code"].tolist() == [[0]] * 5
    assert np.array_equal(inputs["x"], before)


@pytest.mark.parametrize("bits", [4, 6])
@pytest.mark.parametrize("length", [1, 31, 32, 33])
def test_packed_rows_are_what_the_library_packs(bits, length):
    fmt = {4: "mxfp4_e2m1", 6: "mxfp6_e3m2"}[bits]
    codes = np.arange(3 * length, dtype=np.uint8).reshape(3, length) * 7 % (1 << bits)
    q = mx.MXArray.from_parts(codes, np.zeros((3, -(-length // 32)), np.uint8), fmt)
    assert np.array_equal(unpacked(q.pack(), length, bits), codes)


def test_codes_are_read_from_every_type_and_packing():
    codes = (np.arange(64, dtype=np.uint8) % 16).reshape(2, 32)
    packed = codes[:, ::2] | codes[:, 1::2] << 4
    guises = [
        codes,
        codes.astype(np.int64),
        codes.astype(">u4"),
        codes.tolist(),
        codes.view(ml_dtypes.float4_e2m1fn),
        packed,
    ]
    for guise in guises:
        assert np.array_equal(read_element_codes(guise, "codes", TASK, (2, 32)), codes)
    signed = make_task("quantize", "mxint4") if "mxint4" in mx.formats.names("e8m0") else make_task("quantize", "int4")
    as_int4 = np.arange(-8, 8).astype(ml_dtypes.int4).reshape(1, 16)
    assert read_element_codes(as_int4, "codes", signed, (1, 16)).tolist() == [[*range(8, 16), *range(8)]]


def test_scales_are_read_from_every_type_and_order():
    scales = np.arange(6, dtype=np.uint8).reshape(3, 2)
    assert np.array_equal(read_scale_codes(scales.astype(int), "scale", (3, 2)), scales)
    assert np.array_equal(read_scale_codes(scales.view(ml_dtypes.float8_e8m0fnu), "scale", (3, 2)), scales)
    assert np.array_equal(read_scale_codes(swizzle_scales(scales), "scale", (3, 2), "swizzled"), scales)
    assert read_scale_codes([1, 2, 3], "scale", (3, 1), others=((3,),)).tolist() == [[1], [2], [3]]
    with pytest.raises(ValueError, match=r"must be of 512 bytes, as swizzled scales of shape \(3, 2\), not \(3, 2\)"):
        read_scale_codes(scales, "scale", (3, 2), "swizzled")


def test_floats_are_taken_by_value_and_type():
    task = make_task("dequantize", "mxfp4_e2m1")
    assert read_floats(np.ones(3, ">f4"), "value", task, (3,)).dtype == np.dtype("=f4")
    for wrong in (np.ones(3), np.ones(3, np.int32), np.ones(3, np.float16), np.ones(3, complex)):
        with pytest.raises(TypeError, match="must be an array of float32, not"):
            read_floats(wrong, "value", task, (3,))
    assert task.source == FLOATS["float32"]


def test_codes_with_too_many_bits_are_kept_as_misfits():
    assert fitted(np.array([0, 15]), 4).dtype == np.uint8
    for misfit in ([-1], [16], np.array([2**63 + 5], np.uint64)):
        raw = fitted(np.array(misfit), 4)
        assert raw.dtype == np.int64
        assert not fits(raw, 4).any()
    assert fits(np.array([3], np.uint8), 4).all()


def test_quantizer_returns_codes_and_scales():
    assert both([1, 2]) == (1, 2)
    for wrong in (None, (1, 2, 3), {"codes": 1, "scales": 2}, np.zeros((2, 4))):
        with pytest.raises(TypeError, match=r"must return \(codes, scales\), not"):
            both(wrong)


@pytest.mark.parametrize(
    ("result", "kind"),
    [((0, 0, 0), "tuple"), ([np.zeros(1)], "list"), (np.zeros((2, 4), np.uint8), "ndarray"), (None, "NoneType")],
    ids=["three", "one", "two rows", "nothing"],
)
def test_a_quantizer_must_return_a_pair(result, kind):
    with pytest.raises(TypeError, match=rf"^Argument 'function' must return \(codes, scales\), not {kind}\.$"):
        both(result)


def test_a_kernel_that_overwrites_its_input():
    def kernel(x, seed):
        x[:] = mx.fake_quantize(x, "mxfp4_e2m1", rounding="sr", seed=seed)

    def forgets_the_sign(x):
        x[:] = mx.fake_quantize(np.abs(x), "mxfp4_e2m1")

    assert check_stochastic(in_place(kernel), format="mxfp4_e2m1", bias=1 / 16).conforms
    with pytest.raises(ConformanceError, match="sign"):
        check(in_place(forgets_the_sign), format="mxfp4_e2m1")
    with pytest.raises(TypeError, match="not NoneType"):
        check(forgets_the_sign, format="mxfp4_e2m1")
