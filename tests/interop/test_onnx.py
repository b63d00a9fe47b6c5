from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import mxnum as mx
from mxnum.interop import onnx as mx_onnx
from tests import samples


@pytest.fixture
def onnx():
    return pytest.importorskip("onnx", reason="the extra onnx is not installed")


def dequantized(onnx, elements, scales, block):
    """What ONNX's reference evaluator gives for DequantizeLinear."""
    from onnx.reference import ReferenceEvaluator

    helper, kinds = onnx.helper, onnx.TensorProto
    as_float = helper.make_node("Cast", ["x_scale"], ["s"], to=kinds.FLOAT)
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"], axis=-1, block_size=block)
    y = helper.make_tensor_value_info("y", kinds.FLOAT, list(elements.dims))
    graph = helper.make_graph([as_float, node], "g", [], [y], initializer=[elements, scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    return ReferenceEvaluator(model).run(None, {})[0]


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp4_e2m1", "mxint8"])
def test_there_and_back_and_what_onnx_computes(onnx, fmt):
    x = samples.generator("onnx", fmt).standard_normal((3, 64)).astype(np.float32)
    q = mx.quantize(x, fmt)
    elements, scales = mx_onnx.to_onnx(q, "x")
    onnx.checker.check_tensor(elements)
    onnx.checker.check_tensor(scales)
    assert mx_onnx.from_onnx(elements, scales).equals(q)
    assert np.array_equal(dequantized(onnx, elements, scales, 32), q.dequantize())


def test_mistakes(onnx):
    with pytest.raises(ValueError, match="must have elements of e4m3"):
        mx_onnx.to_onnx(mx.quantize(np.ones(32), "mxfp6_e3m2"), "x")
    with pytest.raises(ValueError, match="of scale codes from 6 up"):
        mx_onnx.to_onnx(mx.quantize(np.zeros(32), "mxint8"), "x")


def test_without_onnx_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'mxnum\[onnx\]'"):
        mx_onnx.to_onnx(mx.quantize(np.ones(32), "mxfp8_e4m3"), "x")


def test_the_example_of_the_documentation(onnx):
    """Not run when the pages are built: the package is not installed there."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "interoperate.md"
    example = re.search(r"^## ONNX\n.*?```python\n(.*?)```", page.read_text(), re.S | re.M)
    exec(example[1], {})
