"""Tests that `mxnum.stacks` computes the same NVFP4 bits as each stack's package on a CPU."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import os
import re
import warnings
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum import reference, stacks
from mxnum.definition import stack_arithmetic

#: Functions that make tensors from a random generator, a shape, and the `finfo` of a type.
FAMILIES = {
    "normal": lambda draw, shape, of: draw.standard_normal(shape),
    "a range of sizes": lambda draw, shape, of: (
        draw.standard_normal(shape) * 2.0 ** (of.minexp * draw.uniform(-0.8, 0.8))
    ),
    "heavy tails": lambda draw, shape, of: signs(draw, shape) * np.exp(3 * draw.standard_normal(shape)),
    "every exponent": lambda draw, shape, of: (
        signs(draw, shape) * 2.0 ** draw.uniform(of.minexp - of.nmant, of.maxexp - 0.1, shape)
    ),
    "blocks of every size": lambda draw, shape, of: (
        draw.standard_normal(shape) * 2.0 ** draw.uniform(-30, 0, (shape[0], 1))
    ),
    "near ties": lambda draw, shape, of: (
        draw.integers(-48, 49, shape) * np.float32(2.0 ** draw.integers(of.minexp // 7, -of.minexp // 7) / 3)
    ),
    "zeros among others": lambda draw, shape, of: draw.standard_normal(shape) * (draw.random((shape[0], 1)) < 0.9),
    "large": lambda draw, shape, of: draw.uniform(-1, 1, shape) * float(of.max),
    "small": lambda draw, shape, of: draw.uniform(-1, 1, shape) * 2.0 ** (0.87 * of.minexp),
    "subnormal": lambda draw, shape, of: draw.uniform(-1, 1, shape) * 2.0**of.minexp,
    "infinities": lambda draw, shape, of: np.where(draw.random(shape) < 1e-4, np.inf, draw.standard_normal(shape)),
    "zeros": lambda draw, shape, of: 0 * signs(draw, shape),
}
NARROW = "bfloat16", "float16"


def signs(draw, shape):
    return draw.choice([-1.0, 1.0], shape)


@cache
def tensors(family, dtype="float32"):
    kind = np.dtype(dtype)
    draw = np.random.default_rng(list(FAMILIES).index(family))
    with np.errstate(all="ignore"):
        return [FAMILIES[family](draw, (4096, 16), ml_dtypes.finfo(kind)).astype(kind) for _ in range(5)]


def nvfp4_of(package, path):
    """Import a module of an optional package, without warnings; skip the test if it is missing."""
    pytest.importorskip(package, reason=f"{package} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(path)


def tensor_of(x):
    """Return an array as a tensor of torch."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if x.dtype == np.float32:
        return torch.from_numpy(x)
    return torch.from_numpy(x.view(np.int16)).view(getattr(torch, x.dtype.name))


def bytes_of(tensor):
    import torch

    return tensor.view(torch.uint8).numpy().ravel()


def unpacked(packed):
    """Return the codes of packed bytes, with a row for each block."""
    packed = packed.numpy().reshape(-1, 8)
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1, 16)


def torchao(x, has_global=True):
    """Return the result of torchao for x: codes, block scales, and the stored tensor scale."""
    nvfp4 = nvfp4_of("torchao", "torchao.prototype.mx_formats.nvfp4_tensor")
    tensor = tensor_of(x)
    scale = nvfp4.per_tensor_amax_to_scale(tensor.abs().max()) if has_global else None
    scales, codes = nvfp4.nvfp4_quantize(tensor, 16, scale)
    return unpacked(codes), bytes_of(scales), np.float32(1 if scale is None else scale.item())


def modelopt(x):
    """Return the result of ModelOpt for x, in the same form as `torchao`."""
    nvfp4 = nvfp4_of("modelopt", "modelopt.torch.quantization.qtensor.nvfp4_tensor")
    made, scales, scale = nvfp4.NVFP4QTensor.quantize(tensor_of(x), 16)
    return unpacked(made._quantized_data), bytes_of(scales), np.float32(scale.item())


def compressed_tensors(x):
    """Return the result of compressed-tensors: codes of its compressor, scales of its observers."""
    helpers = nvfp4_of("compressed_tensors", "compressed_tensors.quantization.utils.helpers")
    quantization = nvfp4_of("compressed_tensors", "compressed_tensors.quantization")
    packing = nvfp4_of("compressed_tensors", "compressed_tensors.compressors.nvfp4.helpers")
    import torch

    arguments = quantization.QuantizationArgs(
        num_bits=4, type="float", strategy="tensor_group", group_size=16, scale_dtype=torch.float8_e4m3fn
    )
    tensor = tensor_of(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        global_scale = helpers.generate_gparam(tensor.min(), tensor.max())
        scales, _ = helpers.calculate_qparams(tensor.amin(1), tensor.amax(1), arguments, global_scale)
        packed = packing.quantize_and_pack_fp4(tensor, scales[:, None], global_scale, None, 16)
    return unpacked(packed), bytes_of(scales.to(torch.float8_e4m3fn)), np.float32(global_scale.item())


#: Stacks whose packages install only with a GPU. For each stack, the tests read the path of a
#: checkout of the package's repository from this environment variable.
CHECKOUTS = {
    "transformer_engine": "MXNUM_TRANSFORMER_ENGINE",
    "transformer_engine_2025": "MXNUM_TRANSFORMER_ENGINE_2025",
    "vllm": "MXNUM_VLLM",
}


@cache
def read(stack, *paths):
    """Execute a file of a checkout, and return the names that the file defines.

    The file imports the real torch; stand-ins replace its other imports.
    """
    variable = CHECKOUTS[stack]
    if variable not in os.environ:
        pytest.skip(f"the environment variable {variable} names no checkout")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    path = next(p for p in (Path(os.environ[variable], path) for path in paths) if p.exists())
    tree = ast.parse(path.read_text())
    tree.body = [each for each in tree.body if not isinstance(each, (ast.Import, ast.ImportFrom))]
    names = {
        "torch": torch, "dataclasses": dataclasses, "Optional": object, "Tuple": object, "Union": object,
        "SimpleNamespace": MagicMock(), "Quantizer": type("Quantizer", (), {}), "QuantizedTensorStorage": object,
        "__name__": "builtins",
    }  # fmt: skip
    names |= {
        name: MagicMock()
        for name in ("gemm", "reference_utils", "quantization", "utils", "tl", "triton", "current_platform")
    }
    names["scalar_types"] = SimpleNamespace(float4_e2m1f=SimpleNamespace(max=lambda: 6.0))
    exec(compile(tree, str(path), "exec", annotations.compiler_flag), names)
    return names


def transformer_engine(x, stack="transformer_engine"):
    """Return the result of TransformerEngine's reference for x, in the same form as `torchao`."""
    folder = "transformer_engine/pytorch/custom_recipes"
    names = read(stack, f"{folder}/reference_nvfp4.py", f"{folder}/quantization_nvfp4.py")
    quantize = names["NVFP4QuantizerRef"]._quantize_blockwise_reference
    tensor = tensor_of(x)
    largest = tensor.abs().max().to(tensor_of(np.ones(1, np.float32)).dtype).view(1)
    codes, scales = quantize(tensor, largest, 16, 1, pow_2_scales=False, eps=0.0)
    codes = unpacked(codes)
    # Where scaling underflows to -0, TransformerEngine's reference gives +0 and its kernel -0.
    codes[np.signbit(x.astype(np.float32))] |= 8
    with np.errstate(over="ignore", divide="ignore"):
        return codes, bytes_of(scales), stacks.of(stack).global_scale(np.float32(largest.item()))


def vllm(x):
    """Return the result of vLLM's emulation for x, in the same form as `torchao`."""
    names = read("vllm", "vllm/model_executor/layers/quantization/utils/nvfp4_emulation_utils.py")
    tensor = tensor_of(x)
    global_scale = 448.0 * 6.0 / tensor.abs().max().float()
    values, scales = names["ref_nvfp4_quant"](tensor, tensor_of(np.ones(1, np.float32)) * global_scale, 16)
    codes = mx.encode(np.nan_to_num(values.numpy()), "e2m1")
    return codes, mx.encode(scales.numpy().ravel(), "e4m3"), np.float32(global_scale.item())


PACKAGES = {
    "torchao": torchao,
    "torchao_single": lambda x: torchao(x, has_global=False),
    "modelopt": modelopt,
    "compressed_tensors": compressed_tensors,
    "transformer_engine": transformer_engine,
    "transformer_engine_2025": lambda x: transformer_engine(x, "transformer_engine_2025"),
    "vllm": vllm,
}


def check(stack, x, codes, scales, global_scale):
    """Assert that all bits are equal, except signs of NaN scales and elements under NaN scales.

    The signs of NaN scales, and the elements under NaN scales, depend on the processor.
    """
    got = stacks.quantize(x, stack)
    is_nan = scales & 0x7F == 0x7F
    assert got.global_scale == global_scale or (np.isnan(got.global_scale) and np.isnan(global_scale))
    assert np.array_equal(got.scales, np.where(is_nan, 0x7F, scales))
    assert np.array_equal(got.codes[~is_nan], codes[~is_nan])


#: For each type of tensors, the stacks that accept it.
TAKING = {name: [s for s in PACKAGES if name in stacks.of(s).takes] for name in ("float32", *NARROW)}
COMPARED = [(stack, name) for name, several in TAKING.items() for stack in several]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("stack", "dtype"), COMPARED)
def test_equals_the_package(stack, dtype, family):
    """Check codes and scales against the package, for each dtype and each family in `FAMILIES`."""
    for x in tensors(family, dtype):
        made = PACKAGES[stack](x)
        # torchao computes 0 * (1 / tiny) = 0 * inf, which is a NaN of either sign.
        if (stack, family) == ("torchao", "subnormal") and (x == 0).any():
            with pytest.raises(ValueError, match="does not turn into NaN"):
                check(stack, x, *made)
        else:
            check(stack, x, *made)


@pytest.mark.parametrize("stack", ["torchao", "torchao_single"])
def test_what_the_package_refuses(stack):
    """Check that float16, which torchao does not accept, raises TypeError."""
    x = tensors("normal", "float16")[0]
    for call in (stacks.quantize, stacks.fake_quantize):
        with pytest.raises(TypeError, match=rf"'x' must be of float32 or bfloat16 for {stack}, not 'float16'"):
            call(x, stack)
    with pytest.raises(AssertionError, match="float16 not supported"):
        PACKAGES[stack](x)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("stack", ["torchao", "modelopt", "compressed_tensors"])
def test_reads_what_the_package_reads(stack, family):
    for x in tensors(family):
        try:
            blocks = stacks.quantize(x, stack)
        except ValueError:  # torchao computes 0 * inf, a NaN
            assert (stack, family) == ("torchao", "subnormal")
            continue
        assert np.array_equal(stacks.dequantize(blocks, stack), READERS[stack](x, blocks), equal_nan=True)


def torchao_reads(x, blocks):
    nvfp4 = nvfp4_of("torchao", "torchao.prototype.mx_formats.nvfp4_tensor")
    tensor = tensor_of(x)
    scale = nvfp4.per_tensor_amax_to_scale(tensor.abs().max())
    return nvfp4.NVFP4Tensor.to_nvfp4(tensor, per_tensor_scale=scale).dequantize(tensor.dtype).numpy()


def modelopt_reads(x, blocks):
    nvfp4 = nvfp4_of("modelopt", "modelopt.torch.quantization.qtensor.nvfp4_tensor")
    made, scales, scale = nvfp4.NVFP4QTensor.quantize(tensor_of(x), 16)
    return made.dequantize(dtype=tensor_of(x).dtype, scale=scales, double_scale=scale, block_sizes={-1: 16}).numpy()


def compressed_tensors_reads(x, blocks):
    helpers = nvfp4_of("compressed_tensors", "compressed_tensors.quantization.lifecycle.forward_helpers")
    elements, scales = mx.decode(blocks.codes, "e2m1"), mx.decode(blocks.scales[:, None], "e4m3")
    scale = tensor_of(np.array([blocks.global_scale], np.float32))
    return helpers._dequantize(tensor_of(elements), tensor_of(scales), global_scale=scale).numpy()


READERS = {"torchao": torchao_reads, "modelopt": modelopt_reads, "compressed_tensors": compressed_tensors_reads}


@pytest.mark.parametrize("family", FAMILIES)
def test_elements_equal_onnx(family):
    """Check that elements of two stacks equal those of ONNX: x / scale, rounded to nearest even.

    ModelOpt has NaN scales for tensors with infinities and for tensors of zeros. The test does not
    compare elements under NaN scales, which are 0 in ONNX and 6 in ModelOpt.
    """
    onnx = nvfp4_of("onnx", "onnx")
    evaluator = nvfp4_of("onnx", "onnx.reference").ReferenceEvaluator
    make = onnx.helper
    node = make.make_node(
        "QuantizeLinear", ["x", "s"], ["y"], axis=1, block_size=16, output_dtype=onnx.TensorProto.FLOAT4E2M1
    )
    s_type = make.make_tensor_value_info("s", onnx.TensorProto.FLOAT, [None, 1])
    y_type = make.make_tensor_value_info("y", onnx.TensorProto.FLOAT4E2M1, [None, 16])
    for dtype in ("float32", *NARROW):
        x_type = make.make_tensor_value_info(
            "x", getattr(onnx.TensorProto, dtype.removesuffix("32").upper()), [None, 16]
        )
        graph = make.make_graph([node], "g", [x_type, s_type], [y_type])
        quantize = evaluator(make.make_model(graph, opset_imports=[make.make_opsetid("", 23)]))
        for stack, factor in (("modelopt", np.multiply), ("compressed_tensors", np.divide)):
            for x in tensors(family, dtype):
                blocks = stacks.quantize(x, stack)
                with np.errstate(all="ignore"):
                    scales = factor(mx.decode(blocks.scales, "e4m3"), blocks.global_scale)
                (got,) = quantize.run(None, {"x": x, "s": scales[:, None]})
                same = ~np.isnan(scales) | (stack != "modelopt")
                assert same.all() or np.isinf(x).any() or not x.any()
                assert np.array_equal(got.view(np.uint8)[same] & 7, blocks.codes[same] & 7)


@pytest.mark.parametrize("family", FAMILIES)
def test_roundings_equal_gfloat(family):
    """Check that encoding to E2M1 and E4M3 rounds as gfloat does."""
    gfloat = nvfp4_of("gfloat", "gfloat")
    known = nvfp4_of("gfloat", "gfloat.formats")
    for element, info in (("e2m1", known.format_info_ocp_e2m1), ("e4m3", known.format_info_ocp_e4m3)):
        for x in (x for dtype in ("float32", *NARROW) for x in tensors(family, dtype)):
            got = gfloat.round_ndarray(info, x.astype(np.float64), sat=True)
            assert np.array_equal(mx.decode(mx.encode(x, element), element), got.astype(np.float32))


@pytest.mark.parametrize("stack", stacks.STACKS)
def test_equals_the_definition_where_no_scale_is_rounded(stack):
    """Check blocks whose maxima are 6 * 2**n, so that block scales are exact.

    The first block has the maximum of the tensor, 6 * 448, so the tensor scale is 1.
    """
    draw = np.random.default_rng(0)
    x = draw.integers(-127, 128, (32, 16)).astype(np.float32) / 128
    x[:, 3] = 1
    powers = 2.0 ** draw.integers(-6, 8, 32)
    powers[0] = 448
    x *= np.float32(6) * powers[:, None].astype(np.float32)
    blocks = stacks.quantize(x, stack)
    assert blocks.tensor_scale == 1
    assert blocks.scales.tolist() == [reference.encode(power, "e4m3") for power in powers]
    exact = [
        [reference.encode(Fraction(float(v)) / Fraction(power), "e2m1") for v in row]
        for row, power in zip(x, powers, strict=True)
    ]
    assert np.array_equal(blocks.codes & 7, np.array(exact) & 7)
    assert np.array_equal(blocks.codes[x != 0], np.array(exact)[x != 0])
    values = np.array([[float(reference.decode_exact(c, "e2m1").number) for c in row] for row in exact])
    assert np.array_equal(stacks.dequantize(blocks, stack), (values * powers[:, None]).astype(np.float32))


#: For each stack, two scale codes of a block of zeros: in a tensor with other numbers, and in a
#: tensor of zeros.
ZEROS = {
    "transformer_engine": (0x00, 0x00), "transformer_engine_2025": (0x00, 0x00), "torchao": (0x08, 0x7F),
    "torchao_single": (0x08, 0x08), "vllm": (0x00, 0x00), "compressed_tensors": (0x20, 0x20), "modelopt": (0x38, 0x7F),
}  # fmt: skip


@pytest.mark.parametrize("stack", stacks.STACKS)
def test_zeros(stack):
    beside, alone = ZEROS[stack]
    x = np.zeros((2, 16), np.float32)
    assert stacks.quantize(x, stack).scales.tolist() == [alone, alone]
    x[0] = 2688
    assert stacks.quantize(x, stack).scales[1] == beside
    assert (stacks.quantize(x, stack).codes[1] == 0).all()
    negative = stacks.quantize(-x, stack).codes[1]
    assert (negative == (8 if stacks.STACKS[stack].keeps_negative_zero else 0)).all()


def test_directions():
    x = np.full((1, 16), 1000, np.float32)
    for stack in stacks.STACKS.values():
        blocks = stacks.quantize(x, stack)
        inverse = np.float32(1) / blocks.global_scale
        assert blocks.tensor_scale == (inverse if stack.direction == "encode" else blocks.global_scale)
        assert np.allclose(stacks.dequantize(blocks, stack), 1000, rtol=0.04)


def test_a_part_of_a_tensor_and_a_given_scale():
    x = tensors("normal")[0]
    for name in stacks.STACKS:
        whole = stacks.quantize(x, name)
        part = stacks.quantize(x[:7], name, largest=np.abs(x).max())
        given = stacks.quantize(x[:7], name, global_scale=whole.global_scale)
        for each in (part, given):
            assert np.array_equal(each.codes, whole.codes[:7])
            assert np.array_equal(each.scales, whole.scales[:7])


#: The stack that the fast tier tests: it divides, and computes the global scale in the type of the
#: tensor.
SAMPLE = ("compressed_tensors",)
#: Families whose tensors may contain blocks that compiled loops cannot handle; numpy then quantizes
#: the whole tensor.
LEFT = "every exponent", "large", "small", "subnormal", "infinities", "zeros"


@pytest.mark.parametrize("stack", [s if s in SAMPLE else pytest.param(s, marks=pytest.mark.full) for s in PACKAGES])
def test_loops_compute_what_numpy_does(stack, monkeypatch):
    """Check that compiled loops equal numpy in every bit, for millions of numbers."""
    from mxnum.engine.quantizing import by_stack

    for family in FAMILIES:
        for x in tensors(family):
            try:
                want = stacks.quantize(x, stack)
            except ValueError:
                continue
            values = stacks.dequantize(want, stack)
            with monkeypatch.context() as patched:
                patched.setattr(stacks, "SMALL", 0)
                got = stacks.quantize(x, stack)
                read, both = stacks.dequantize(got, stack), stacks.fake_quantize(x, stack)
            assert np.array_equal(got.codes, want.codes), family
            assert np.array_equal(got.scales, want.scales), family
            assert (got.global_scale, got.largest) == (want.global_scale, want.largest)
            assert read.tobytes() == values.tobytes(), family
            assert both.tobytes() == values.tobytes(), family
        of_tensor = want.global_scale, want.largest
        made = by_stack.quantize(x, (1, 16), stacks.of(stack), *of_tensor, False, None, lambda: None)
        assert made is not None or family in LEFT, family


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.full)])
def test_loops_over_16_bits_and_other_layouts(dtype, monkeypatch):
    x = tensors("normal")[0].reshape(256, 256).astype(dtype)
    layouts = {(1, 16): x, (16, 1): x, (4, 4): x, (1, 32): np.asfortranarray(x), (1, 24): x[:, ::2]}
    for blocks, array in layouts.items():
        want = stacks.quantize(array, "compressed_tensors", blocks=blocks)
        with monkeypatch.context() as patched:
            patched.setattr(stacks, "SMALL", 0)
            got = stacks.quantize(array, "compressed_tensors", blocks=blocks)
            packed = mx.quantize(array, "nvfp4", blocks=blocks, arithmetic="compressed_tensors", packed=True)
        assert np.array_equal(got.codes, want.codes), blocks
        assert np.array_equal(got.scales, want.scales), blocks
        assert packed.is_packed
        assert np.array_equal(packed.codes, want.codes), blocks


@pytest.mark.parametrize("stack", stacks.STACKS)
def test_quantize_and_fake_quantize(stack):
    x = tensors("blocks of every size")[0].reshape(256, 256)
    q = mx.quantize(x, "nvfp4", arithmetic=stack)
    rows = stacks.quantize(x.reshape(-1, 16), stack)
    assert np.array_equal(q.codes, rows.codes.reshape(256, 256))
    assert np.array_equal(q.scales.ravel(), rows.scales)
    assert q.tensor_scale == rows.tensor_scale
    assert mx.quantize(x, "nvfp4", arithmetic=stack, packed=True).unpacked().equals(q)
    values = mx.fake_quantize(x, "nvfp4", arithmetic=stack)
    assert np.array_equal(values, stacks.dequantize(rows, stack).reshape(256, 256))
    assert np.allclose(values, q.dequantize(), rtol=1e-6, atol=0)
    columns = mx.quantize(x, "nvfp4", axis=0, arithmetic=stack)
    assert columns.T.equals(mx.quantize(x.T, "nvfp4", arithmetic=stack))
    tiles = mx.quantize(x, "nvfp4", block_shape=(16, 16), arithmetic=stack)
    blocks = x.reshape(16, 16, 16, 16).swapaxes(1, 2).reshape(-1, 256)
    for tile, scale in zip(blocks, tiles.scales.ravel(), strict=True):
        assert stacks.quantize(tile[None], stack, blocks=(1, 256), global_scale=rows.global_scale).scales == scale
    narrow = x.astype(ml_dtypes.bfloat16)
    assert mx.fake_quantize(narrow, "nvfp4", arithmetic=stack).dtype == narrow.dtype


@pytest.mark.parametrize("stack", [pytest.param("transformer_engine", marks=pytest.mark.full), "torchao"])
@pytest.mark.parametrize("rows", [4, 8192])  # numpy computes 4 rows; compiled loops compute 8192
def test_out(stack, rows):
    x = np.resize(tensors("normal")[0], (rows, 16))
    odd = x.copy()
    odd[1, 3] = np.inf  # compiled loops write some blocks, then stop at the infinity
    for array in (x, odd, np.asfortranarray(x)):
        want, out = mx.fake_quantize(array, "nvfp4", arithmetic=stack), np.empty_like(array)
        assert mx.fake_quantize(array, "nvfp4", arithmetic=stack, out=out) is out
        assert out.tobytes() == want.tobytes()
        room = np.concatenate([array, array[:1]])
        for place in (slice(0, rows), slice(1, rows + 1)):  # `out` is x itself, then x shifted by one row
            room[:rows] = array
            mx.fake_quantize(room[:rows], "nvfp4", arithmetic=stack, out=room[place])
            assert room[place].tobytes() == want.tobytes()
        for packed in (False, True):
            q = mx.quantize(np.zeros_like(array), "nvfp4", packed=packed)
            assert mx.quantize(array, "nvfp4", arithmetic=stack, out=q) is q
            assert q.is_packed == packed
            assert q.equals(mx.quantize(array, "nvfp4", arithmetic=stack, packed=packed))
    with pytest.raises(ValueError, match="'out' must be of shape"):
        mx.fake_quantize(x, "nvfp4", arithmetic=stack, out=np.empty((rows, 15), np.float32))
    part = mx.quantize(np.ones((rows + 1, 16), np.float32), "nvfp4")
    before = part.codes.copy()
    with pytest.raises(ValueError, match="tensor scale"):
        mx.quantize(x, "nvfp4", arithmetic=stack, out=part[:rows])
    assert np.array_equal(part.codes, before)


def test_what_stack_arithmetic_is_not_for():
    x = np.ones(16, np.float32)
    with pytest.raises(ValueError, match=r"did you mean 'torchao'\?"):
        mx.quantize(x, "nvfp4", arithmetic="torcha")
    # Regression: the list of stacks in the error message lacked 'exact'.
    with pytest.raises(
        ValueError, match=r"'arithmetic' must be one of \['exact', 'transformer_engine', .*did you mean 'exact'\?"
    ):
        mx.quantize(x, "nvfp4", arithmetic="Exact")
    with pytest.raises(ValueError, match="'arithmetic' must be 'exact' for"):
        mx.quantize(x, "mxfp4_e2m1", arithmetic="torchao")
    for given in ({"rounding": "rtz"}, {"scale_rule": "rceil"}, {"tensor_scale": 1.0}, {"nonfinite": "raise"}):
        with pytest.raises(ValueError, match="'arithmetic' must be 'exact' if rounding"):
            mx.fake_quantize(x, "nvfp4", arithmetic="torchao", **given)
    with pytest.raises(TypeError, match="'x' must be of float32 or bfloat16 for torchao, not 'float64'"):
        mx.quantize(x.astype(float), "nvfp4", arithmetic="torchao")


def test_constants_are_rounded_quotients():
    for constant, divisor in ((stack_arithmetic._SIXTH, 6), (stack_arithmetic._BOTH_MAX_INVERSE, 2688)):
        assert constant == 1 / np.float32(divisor)


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"'stack' must be one of \['transformer_engine', .*'torchao'"):
        stacks.quantize(np.ones((1, 16), np.float32), "torcha")
    with pytest.raises(
        ValueError, match=r"must be of shape \(n, 16\), with a block in each row, unless `blocks` is given"
    ):
        stacks.quantize(np.ones(16, np.float32), "torchao")
    for wrong in (-3.0, np.nan):
        with pytest.raises(ValueError, match=r"'global_scale' must be a number that is not negative, not (-3\.0|nan)"):
            stacks.quantize(np.ones((1, 16), np.float32), "modelopt", global_scale=wrong)
    with pytest.raises(ValueError, match=r"free of NaN .* at index"):
        stacks.quantize(np.full((1, 16), np.nan, np.float32), "modelopt")
    with pytest.raises(ValueError, match=r"free of NaN .* at index"):
        stacks.quantize(np.full((1, 16), np.nan, np.float32), "modelopt", largest=np.float32(1))
    x = np.zeros((1, 16), np.float32)
    x[0, 0] = 1e-36
    with pytest.raises(ValueError, match=r"that torchao does not turn into NaN, not 0\.0"):
        stacks.quantize(x, "torchao")


def test_arguments_that_were_not_looked_at():
    # Regression: `dequantize` read packed codes as unpacked codes.
    x = np.ones((2, 16), np.float32)
    with pytest.raises(ValueError, match="'made' must be unpacked"):
        stacks.dequantize(stacks.quantize(x, "vllm", packed=True), "vllm")
    for wrong, says in (
        ({"largest": np.nan}, "'largest' must be a magnitude, not nan"),
        ({"blocks": (16,)}, "'blocks' must be a tuple of 2 block lengths"),
        ({"blocks": (1, 0)}, "'blocks' must be at least 1, not 0"),
        ({"threads": 0}, "'threads' must be at least 1, not 0"),
    ):
        with pytest.raises(ValueError, match=re.escape(says)):
            stacks.quantize(x, "vllm", **wrong)
    with pytest.raises(TypeError, match="'x' must be a numpy array, not 'list'"):
        stacks.quantize(x.tolist(), "vllm")
    with pytest.raises(ValueError, match="'out' must be of dtype float32"):
        stacks.fake_quantize(x, "vllm", blocks=(1, 16), out=np.zeros(x.shape))
