from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance import make_task
from mxnum.conformance.bits import as_floats
from mxnum.conformance.cases.batches import cases
from mxnum.interop import onnx as mx_onnx
from tests import samples


@pytest.fixture
def onnx():
    return pytest.importorskip("onnx", reason="the extra onnx is not installed")


def evaluated(onnx, operator, inputs, scales, result, **attributes):
    """Run an operator in ONNX's reference evaluator, with scales of blocks along the last axis."""
    from onnx.reference import ReferenceEvaluator

    helper = onnx.helper
    x = onnx.helper.make_tensor_value_info("x", onnx.helper.np_dtype_to_tensor_dtype(inputs.dtype), inputs.shape)
    y = helper.make_tensor_value_info("y", result, inputs.shape)
    node = helper.make_node(operator, ["x", scales.name], ["y"], axis=-1, output_dtype=result, **attributes)
    graph = helper.make_graph([node], "g", [x], [y], initializer=[scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    return ReferenceEvaluator(model).run(None, {"x": inputs})[0]


def known(onnx, fmt):
    """Return the format, or skip the test if the installed onnx has no type for it."""
    if not hasattr(onnx.TensorProto, mx_onnx.TYPES[mx.formats.get(fmt).element.name]):
        pytest.skip(f"onnx {onnx.__version__} has no type for {fmt}")
    return fmt


FORMATS = ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4_e2m1", "mxint8"]


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("shape", [(3, 64), (2, 3, 33), (5,)])
def test_written_tensors_are_read_back(onnx, fmt, shape):
    q = mx.quantize(samples.generator("onnx", fmt, shape).standard_normal(shape), known(onnx, fmt))
    elements, scales = mx_onnx.to_onnx(q, "x")
    onnx.checker.check_tensor(elements)
    onnx.checker.check_tensor(scales)
    assert mx_onnx.from_onnx(elements, scales).equals(q)
    if fmt != "mxint8":
        theirs = onnx.numpy_helper.from_array(q.elements, "x")
        assert (theirs.data_type, theirs.raw_data) == (elements.data_type, elements.raw_data)


@pytest.mark.parametrize("fmt", FORMATS)
def test_dequantize_linear_gives_the_same_values(onnx, fmt):
    x = samples.generator("onnx values", fmt).standard_normal((9, 64)) * 10.0 ** np.arange(-36, 36, 8)[:, None]
    q = mx.quantize(x.astype(np.float32), known(onnx, fmt))
    elements, scales = mx_onnx.to_onnx(q, "x")
    elements = onnx.numpy_helper.to_array(elements)
    got = evaluated(onnx, "DequantizeLinear", elements, scales, onnx.TensorProto.FLOAT, block_size=32)
    assert np.array_equal(got, q.dequantize())


@pytest.mark.parametrize("fmt", [name for name in FORMATS if name != "mxint8"])
def test_quantize_linear_gives_the_same_codes_at_every_boundary_and_every_scale(onnx, fmt):
    """Check that QuantizeLinear gives mxnum's codes for the test vectors of level 1."""
    task = make_task("quantize", known(onnx, fmt))
    told = 0
    for inputs in cases(task):
        x = as_floats(inputs["x"], task.source)
        q = mx.quantize(x, fmt)
        elements, scales = mx_onnx.to_onnx(q, "x")
        with np.errstate(all="ignore"):
            got = evaluated(onnx, "QuantizeLinear", x, scales, elements.data_type, block_size=32).view(np.uint8)
        # The codes of blocks with NaN scales have no meaning: mxnum writes 0, and ONNX writes NaN.
        usual = q.scales[:, 0] != 0xFF
        assert np.array_equal(got[usual], q.codes[usual])
        told += int(usual.sum())
    assert told > 500


@pytest.mark.parametrize("overflow", ["saturate", "ieee"])
@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp8_e5m2"])
def test_quantize_linear_saturates_or_not(onnx, fmt, overflow):
    x = np.array([[1e5, -1e5, 449, 464, 480, 57345, 61440, np.inf]], np.float32)
    scales = np.full((1, 1), 127, np.uint8)
    _, scale = mx_onnx.to_onnx(mx.MXArray.from_parts(np.zeros((1, 8), np.uint8), scales, fmt), "x")
    kind = getattr(onnx.TensorProto, mx_onnx.TYPES[mx.formats.get(fmt).element.name])
    with np.errstate(all="ignore"):
        got = evaluated(onnx, "QuantizeLinear", x, scale, kind, block_size=8, saturate=int(overflow == "saturate"))
    want = mx.quantize(x, fmt, scales=scales, nonfinite="element", overflow=overflow)
    assert np.array_equal(got.view(np.uint8), want.codes)


def test_scales_of_int8_differ_by_2_to_the_6(onnx):
    """Check that ONNX gives the integers of mxnum if the scales come from `to_onnx`.

    Where mxnum gives -127, ONNX may give -128.
    """
    x = samples.generator("onnx int8").standard_normal((40, 32)).astype(np.float32)
    q = mx.quantize(x, "mxint8")
    _, scales = mx_onnx.to_onnx(q, "x")
    got = evaluated(onnx, "QuantizeLinear", x, scales, onnx.TensorProto.INT8, block_size=32)
    assert np.array_equal(np.maximum(got, -127), q.codes.view(np.int8))


def test_arrays_that_would_be_read_with_other_values_raise(onnx):
    # Each array in this test would be read back with other values.
    elements, scales = mx_onnx.to_onnx(mx.quantize(np.ones(32), "mxfp8_e4m3"), "x")
    with pytest.raises(ValueError, match="'format' must be of e4m3 elements, not 'mxfp8_e5m2'"):
        mx_onnx.from_onnx(elements, scales, format="mxfp8_e5m2")
    for fmt in ("e4m3:bias=8", "e4m3:specials=none"):  # element formats that are named e4m3 but have other values
        with pytest.raises(ValueError, match=f"must be of e4m3 elements, not '{fmt[:5]}"):
            mx_onnx.from_onnx(elements, scales, format=fmt)
        with pytest.raises(ValueError, match=f"must be of e4m3, .* elements, not '{fmt[:5]}"):
            mx_onnx.to_onnx(mx.quantize(np.ones(32), fmt), "x")
    elements, scales = mx_onnx.to_onnx(mx.quantize(np.full(32, 2.0**127), "mxint8"), "x")
    assert mx_onnx.from_onnx(elements, scales).scales == [254]
    scales.raw_data = bytes([249])
    with pytest.raises(ValueError, match="'scales' must be codes of at most 248 for mxint8, not 249"):
        mx_onnx.from_onnx(elements, scales)
    scales.raw_data = bytes([255])
    assert mx_onnx.from_onnx(elements, scales).scales == [255]
    with pytest.raises(ValueError, match="'q' must be without offsets"):
        mx_onnx.to_onnx(mx.quantize(np.ones(32), "mxint8", offset="float16"), "x")


FLOAT_SCALES = ["e4m3:block=16,scale=float32", "e2m1:block=32,scale=float16", "int8:block=32,scale=bfloat16"]


@pytest.mark.parametrize("fmt", FLOAT_SCALES)
def test_scales_that_are_floats(onnx, fmt):
    q = mx.quantize(samples.generator("onnx floats", fmt).standard_normal((9, 64)).astype(np.float32), fmt)
    elements, scales = mx_onnx.to_onnx(q, "w")
    onnx.checker.check_tensor(scales)
    assert mx_onnx.from_onnx(elements, scales, block_size=q.format.block).equals(q)
    assert mx_onnx.from_onnx(elements, scales, format=fmt).equals(q)
    elements = onnx.numpy_helper.to_array(elements)
    got = evaluated(onnx, "DequantizeLinear", elements, scales, onnx.TensorProto.FLOAT, block_size=q.format.block)
    assert got.dtype == np.float32
    assert np.array_equal(got, q.dequantize())


def test_scales_that_onnx_cannot_store_raise(onnx):
    for fmt in ("nvfp4", "e2m1:block=16,scale=ue5m3", "e4m3:block=32,scale=float16,tensor_scale=float32"):
        with pytest.raises(ValueError, match="'q' must be an array with e8m0, float32, bfloat16 or float16 scales"):
            mx_onnx.to_onnx(mx.quantize(np.ones(32), fmt), "w")
    small = mx.MXArray.from_parts(
        np.ones(32, np.uint8), np.full(1, 2.0**-20, np.float16), "int8:block=32,scale=float16"
    )
    with pytest.raises(
        ValueError, match=r"'q' must be an array whose scales times 2\*\*-6 are exact in float16, not 9.5"
    ):
        mx_onnx.to_onnx(small, "w")
    elements, scales = mx_onnx.to_onnx(mx.quantize(np.ones(32), "mxfp8_e4m3"), "w")
    with pytest.raises(ValueError, match="'format' must be a format with e8m0 scales, not 'mx_e4m3_32_float32'"):
        mx_onnx.from_onnx(elements, scales, format="e4m3:block=32,scale=float32")


def test_mistakes(onnx, monkeypatch):
    with pytest.raises(ValueError, match=r"must be of e4m3, .* elements"):
        mx_onnx.to_onnx(mx.quantize(np.ones(32), "mxint4"), "x")
    with pytest.raises(ValueError, match="whose scale codes are at least 6"):
        mx_onnx.to_onnx(mx.quantize(np.zeros(32), "mxint8"), "x")
    monkeypatch.setitem(mx_onnx.TYPES, "e2m3", "FLOAT6NEWER")
    with pytest.raises(ValueError, match="Elements of e2m3 need a version of onnx that has FLOAT6NEWER, not "):
        mx_onnx.to_onnx(mx.quantize(np.zeros(32), "mxfp6_e2m3"), "x")


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxint8", "e4m3:block=32,scale=float32"])
def test_tiles_raise(onnx, fmt):
    """Check that tiles, which DequantizeLinear cannot read, raise an error."""
    x = samples.generator("onnx tiles").standard_normal((4, 4)).astype(np.float32)
    for blocks in ((2, 2), (4, 4)):
        with pytest.raises(ValueError, match=rf"in blocks along one axis.* not \({blocks[0]}, {blocks[1]}\)"):
            mx_onnx.to_onnx(mx.quantize(x, fmt, blocks=blocks), "x")


@pytest.mark.parametrize("blocks", [(2, 1), (1, 2), (1, 1), (9, 2)])
def test_blocks_along_one_axis_make_a_valid_model(onnx, blocks):
    shape = (1, 4) if blocks[0] == 9 else (4, 4)  # a tile of a single row is a block along that row
    q = mx.quantize(samples.generator("onnx axis").standard_normal(shape), "mxfp8_e4m3", blocks=blocks)
    elements, scales = mx_onnx.to_onnx(q, "x")
    helper, result = onnx.helper, onnx.TensorProto.FLOAT
    axis = 0 if blocks == (2, 1) else 1
    attributes = {"axis": axis, "block_size": blocks[axis], "output_dtype": result}
    node = helper.make_node("DequantizeLinear", ["x", "x_scale"], ["y"], **attributes)
    y = helper.make_tensor_value_info("y", result, q.shape)
    graph = helper.make_graph([node], "g", [], [y], initializer=[elements, scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    onnx.checker.check_model(model, full_check=True)
    from onnx.reference import ReferenceEvaluator

    assert np.array_equal(ReferenceEvaluator(model).run(None, {})[0], q.dequantize())
