"""Tests that errors about arguments say in one sentence what was wrong and what is accepted."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mxnum as mx
from mxnum import errors

X = np.ones((4, 64), np.float32)
#: `Q` is built from parts, because quantizing would compile while pytest collects tests.
Q = mx.MXArray.from_parts(np.zeros((4, 64), np.uint8), np.full((4, 2), 127, np.uint8), "mxfp8_e4m3")
INT = np.ones(4, np.int32)
WORDS = np.zeros((4, 64), np.uint32)

CASES = {
    # formats and modes
    "unknown format": (lambda: mx.quantize(X, "mxfp8_e4m4"), "must be one of ['mxfp8_e4m3', .*, not 'mxfp8_e4m4'; did you mean 'mxfp8_e4m3'?"),
    "format of another type": (lambda: mx.quantize(X, 8), "'format' must be one of .* not 8"),
    "format without a hash": (lambda: mx.quantize(X, ["mxint8"]), "'format' must be one of .* not ['mxint8']"),
    "unknown rounding": (lambda: mx.quantize(X, "mxint8", rounding="nearest"), "'rounding' must be one of ['rne', .* not 'nearest'"),
    "unknown scale rule": (lambda: mx.quantize(X, "mxint8", scale_rule="ciel"), "did you mean 'ceil'?"),
    "unknown overflow": (lambda: mx.quantize(X, "mxint8", overflow="wrap"), "'overflow' must be one of ['saturate', 'ieee']"),
    "unknown nonfinite": (lambda: mx.quantize(X, "mxint8", nonfinite="ignore"), "'nonfinite' must be one of"),
    "encode has no block policy": (lambda: mx.encode(X, "e4m3", nonfinite="block"), "must be one of ['element', 'raise'], not 'block'"),
    "unknown element": (lambda: mx.encode(X, "e4m4"), "'element' must be one of .* did you mean 'e4m3'?"),
    "a format for an element": (lambda: mx.encode(X, "mxfp4_e2m1"), "'element' must be one of .* not 'mxfp4_e2m1'; did you mean 'e2m1'?"),
    "strings": (lambda: mx.quantize(np.array(["12.5"]), "mxint8"), "'x' must be an array of float64, float32, bfloat16 or float16, not strings."),
    "unknown dtype": (lambda: Q.dequantize("float8"), "'dtype' must be one of ['float64', 'float32', 'bfloat16', 'float16'], not 'float8'"),
    "integer dtype": (lambda: Q.dequantize(np.int32), "'dtype' must be one of"),
    "dtype that is none": (lambda: Q.dequantize(object()), "'dtype' must be one of"),
    "no dtype": (lambda: Q.dequantize(None), "'dtype' must be one of .* not None"),
    "dtype of another byte order": (lambda: Q.dequantize(np.dtype(">f4")), "'dtype' must be one of .* not '>f4'"),
    "unknown offset": (lambda: mx.quantize(X, "mxint4", offset="float32"), "'offset' must be one of ['float16'], not 'float32'"),
    "offset_range alone": (lambda: mx.quantize(X, "mxint4", offset_range="half"), "'offset_range' must be left out unless offset='float16'"),
    "unknown offset_range": (lambda: mx.quantize(X, "mxint4", offset="float16", offset_range="full"), "'offset_range' must be one of"),
    # inputs
    "integers": (lambda: mx.quantize(INT, "mxint8"), "'x' must be an array of float64, float32, bfloat16 or float16, not int32"),
    "fake_quantize of integers": (lambda: mx.fake_quantize(INT, "mxint8"), "'x' must be an array of"),
    "complex numbers": (lambda: mx.encode(np.ones(3, complex), "e4m3"), "not complex128"),
    "extended precision": (lambda: mx.quantize(np.ones(3, np.longdouble), "mxint8"), "'x' must be an array of"),
    "booleans": (lambda: mx.shared_scale([True], "mxint8"), "not bool"),
    # layout
    "axis out of range": (lambda: mx.quantize(X, "mxint8", axis=2), "'axis' must be between -2 and 1, not 2"),
    "axis of a float": (lambda: mx.quantize(X, "mxint8", axis=0.5), "'axis' must be an integer, not 0.5"),
    "axis of a scalar": (lambda: mx.quantize(np.float32(1), "mxint8", axis=1), "'axis' must be 0 or -1 for an array without axes"),
    "block_size that is True": (lambda: mx.quantize(X, "mxint8", block_size=True), "'block_size' must be an integer, not True"),
    "block_size zero": (lambda: mx.quantize(X, "mxint8", block_size=0), "'block_size' must be at least 1, not 0"),
    "block_shape and axis": (lambda: mx.quantize(X, "mxint8", axis=0, block_shape=(2, 2)), "'axis' must not be given together with 'block_shape'"),
    "block_shape and blocks": (lambda: mx.quantize(X, "mxint8", blocks=(2, 2), block_shape=(2, 2)), "must not be given together with 'blocks'"),
    "block_shape of one axis": (lambda: mx.quantize(X, "mxint8", block_shape=(4,)), "'block_shape' must be a tuple of 2 block lengths, not (4,)"),
    "block_shape of a vector": (lambda: mx.quantize(X[0], "mxint8", block_shape=(4, 4)), "'block_shape' must be used with an array of at least two axes"),
    "blocks of the wrong rank": (lambda: mx.quantize(X, "mxint8", blocks=(32,)), "'blocks' must be a tuple of 2 block lengths, not (32,)"),
    # scales
    "scales of the wrong shape": (lambda: mx.quantize(X, "mxint8", scales=np.zeros((4, 3), np.uint8)), "'scales' must be of shape (4, 2), not (4, 3)"),
    "scales of the wrong type": (lambda: mx.quantize(X, "mxint8", scales=np.zeros((4, 2))), "'scales' must be a uint8 array of E8M0 codes, not 'float64'"),
    # stochastic rounding
    "sr without bits": (lambda: mx.quantize(X, "mxint8", rounding="sr"), "'random_bits' or 'seed' must be given with rounding='sr'"),
    "bits without sr": (lambda: mx.quantize(X, "mxint8", random_bits=WORDS), "'random_bits' must be left out unless rounding='sr'"),
    "seed without sr": (lambda: mx.encode(X, "e4m3", seed=1), "'seed' must be left out unless rounding='sr'"),
    "fewer bits without sr": (lambda: mx.quantize(X, "mxint8", sr_bits=8), "'sr_bits' must be left out unless rounding='sr'"),
    # Regression: without rounding="sr", the values of `sr_bits` and `stream` were not checked.
    "sr_bits without sr": (lambda: mx.quantize(X, "mxint8", sr_bits=31), "'sr_bits' must be between 1 and 30, not 31"),
    "sr_bits of a float without sr": (lambda: mx.fake_quantize(X, "mxint8", sr_bits=8.0), "'sr_bits' must be an integer, not 8.0"),
    "stream without sr": (lambda: mx.encode(X, "e4m3", stream=-1), "'stream' must be between 0 and 18446744073709551615, not -1"),
    "stream beside words": (lambda: mx.quantize(X, "mxint8", rounding="sr", random_bits=WORDS, stream="a"), "'stream' must be an integer, not 'a'"),
    "another scale": (lambda: mx.MXFormat("e4m3", mx.ScaleFormat("e5m3", 8, 15, 255)), "'scale' must be one of ['e8m0', 'e4m3', 'ue5m3', 'float32', 'bfloat16', 'float16'], not"),
    "two formats of that name": (lambda: mx.quantize(X, "mxfp8"), "'format' must be 'mxfp8_e4m3' or 'mxfp8_e5m2', not 'mxfp8', which may mean either"),
    "a format that is not here": (lambda: mx.quantize(X, "nvfp8"), "'format' must be one of"),
    "both": (lambda: mx.quantize(X, "mxint8", rounding="sr", seed=1, random_bits=WORDS), "'seed' must not be given together with 'random_bits'"),
    "bits of the wrong type": (lambda: mx.quantize(X, "mxint8", rounding="sr", random_bits=WORDS.astype(int)), "'random_bits' must be a uint32 array, not 'int64'"),
    "bits of another byte order": (lambda: mx.quantize(X, "mxint8", rounding="sr", random_bits=WORDS.astype(">u4")), "'random_bits' must be a uint32 array in native byte order, not '>u4'"),
    "bits of the wrong shape": (lambda: mx.quantize(X, "mxint8", rounding="sr", random_bits=WORDS[0]), "'random_bits' must be of shape (4, 64), not (64,)"),
    "too many bits": (lambda: mx.quantize(X, "mxint8", rounding="sr", seed=1, sr_bits=31), "'sr_bits' must be between 1 and 30, not 31"),
    "seed too large": (lambda: mx.quantize(X, "mxint8", rounding="sr", seed=1 << 64), "'seed' must be between 0 and 18446744073709551615"),
    "stream negative": (lambda: mx.quantize(X, "mxint8", rounding="sr", seed=1, stream=-1), "'stream' must be between 0 and"),
    # nonfinite
    "raise": (lambda: mx.quantize(np.array([[1, 2], [np.inf, 3]]), "mxint8", nonfinite="raise"), "'x' must be finite everywhere with nonfinite='raise'; there is a NaN or infinity at index (1, 0)"),
    "raise in encode": (lambda: mx.encode(np.array([1.0, -np.inf]), "e4m3", nonfinite="raise"), "at index 1."),
    "raise in shared_scale": (lambda: mx.shared_scale([np.nan], "mxint8", nonfinite="raise"), "at index 0."),
    "raise without axes": (lambda: mx.quantize(np.float32("inf"), "mxint8", nonfinite="raise"), "there is a NaN or infinity."),
    "NaN without a code": (lambda: mx.encode(np.array([np.inf, 1, np.nan]), "e2m1"), "'x' must be free of NaN for e2m1, which has no NaN code; there is a NaN at index 2"),
    "NaN in a block": (lambda: mx.quantize(np.array([[1, np.nan]]), "mxint8", nonfinite="element"), "there is a NaN at index (0, 1)"),
    # parts
    "codes too large": (lambda: mx.MXArray.from_parts(np.full(4, 16, np.uint8), np.zeros(1, np.uint8), "mxint4"), "'codes' must be below 16, not 16"),
    "codes of the wrong type": (lambda: mx.MXArray.from_parts(np.zeros(4, np.int8), np.zeros(1, np.uint8), "mxint4"), "'codes' must be a uint8 array, not 'int8'"),
    "scales of another layout": (lambda: mx.MXArray.from_parts(Q.codes, Q.scales, "mxfp8_e4m3", axis=0), "'scales' must be of shape (1, 64), not (4, 2)"),
    "offsets of the wrong type": (lambda: mx.MXArray.from_parts(Q.codes, Q.scales, "mxint8", offsets=np.zeros((4, 2))), "'offsets' must be a float16 array, not 'float64'"),
    "offsets of the wrong shape": (lambda: mx.MXArray.from_parts(Q.codes, Q.scales, "mxint8", offsets=np.zeros(2, np.float16)), "'offsets' must be of shape (4, 2)"),
    "packed of the wrong length": (lambda: mx.MXArray.from_packed(np.zeros((4, 31), np.uint8), Q.scales, "mxfp4_e2m1", length=64), "'packed' must be an array of 32 bytes per row for 64 codes of 4 bits"),
    "packed of the wrong type": (lambda: mx.MXArray.from_packed(np.zeros(4), Q.scales, "mxfp4_e2m1", length=8), "'packed' must be a uint8 array"),
    "packed without axes": (lambda: mx.MXArray.from_packed(np.uint8(0), Q.scales, "mxfp4_e2m1", length=1), "'packed' must be an array of at least one axis"),
    "decode of a wide code": (lambda: mx.decode(np.array([8], np.uint8), mx.ElementFormat("e2m0", 2, 0, 1)), "'codes' must be below 8"),
    "decode of bytes as float16": (lambda: mx.decode(np.zeros(2, np.uint8), "float16"), "'codes' must be a uint16 array, not 'uint8'"),
    "transpose": (lambda: Q.transpose(0, 0), "'axes' must be a permutation of 2 axes, not (0, 0)"),
    "two ellipses": (lambda: Q[..., ...], "'key' must be an index with one '...' at most"),
    "dequantize of an array": (lambda: mx.dequantize(X), "'q' must be an MXArray, not 'ndarray'"),
    # out
    "out of the wrong shape": (lambda: Q.dequantize(out=np.zeros((4, 63), np.float32)), "'out' must be of shape (4, 64), not (4, 63)"),
    "out of the wrong dtype": (lambda: Q.dequantize(out=np.zeros((4, 64))), "'out' must be of dtype float32, not dtype('float64')"),
    "out of another byte order": (lambda: Q.dequantize(out=np.zeros((4, 64), ">f4")), "'out' must be of dtype float32"),
    "out of a product": (lambda: mx.matmul(Q, Q.T, out=np.zeros((4, 4), int)), "'out.dtype' must be one of .* not 'int64'"),
    "out that is a list": (lambda: mx.fake_quantize(X, "mxint8", out=[]), "'out' must be a numpy array, not 'list'"),
    "out that is not packed": (lambda: mx.quantize(X, "mxint4", packed=True, out=mx.quantize(X, "mxint4")), "'out' must be packed, not <MXArray mxint4"),
    "packed of another kind": (lambda: mx.quantize(X, "mxint4", packed=1), "'packed' must be True or False, not 1"),
    "out of packed of another shape": (lambda: mx.quantize(X, "mxint4", packed=True).pack(out=np.zeros((4, 64), np.uint8)), "'out' must be of shape (4, 32), not (4, 64)"),
    "out that is read-only": (lambda: Q.dequantize(out=np.broadcast_to(np.float32(0), (4, 64))), "'out' must be writable"),
    # format descriptions
    "too many exponent bits": (lambda: mx.ElementFormat("e12m1", 12, 1, 1), "'exponent_bits' must be between 1 and 11, not 12"),
    "exponent bits of a float": (lambda: mx.ElementFormat("e3m2", 3.0, 2, 1), "'exponent_bits' must be an integer, not 3.0"),
    "bias of a float": (lambda: mx.ElementFormat("e3m2", 3, 2, 1.5), "'bias' must be an integer, not 1.5"),
    "no bias": (lambda: mx.ElementFormat("e3m2", 3, 2, None), "'bias' must be an integer, not None"),
    "bits of an integer": (lambda: mx.formats.two_complement("int4", 4.0), "'bits' must be an integer, not 4.0"),
    "mantissa bits": (lambda: mx.ElementFormat("e2m60", 2, 60, 1), "'mantissa_bits' must be between 0 and 52"),
    "bias": (lambda: mx.ElementFormat("e2m1", 2, 1, 5000), "'bias' must be between -1023 and 1023"),
    "specials": (lambda: mx.ElementFormat("e2m1", 2, 1, 1, specials="inf"), "'specials' must be one of ['none', 'nan', 'ieee']"),
    "ieee without mantissa": (lambda: mx.ElementFormat("e4m0", 4, 0, 7, specials="ieee"), "'specials' must be 'none' or 'nan' if exponent_bits < 2 or mantissa_bits < 1"),
    "nan without room": (lambda: mx.ElementFormat("e1m0", 1, 0, 0, specials="nan"), "'specials' must be 'none' in a format with only one bit"),
    "canonical without ieee": (lambda: mx.ElementFormat("e4m3", 4, 3, 7, specials="nan", canonical_nan=True), "'canonical_nan' must be False"),
    "integer with specials": (lambda: mx.ElementFormat("i", 1, 6, 1, specials="nan", integer=True), "'integer' must be combined with"),
    "tiny integer": (lambda: mx.formats.two_complement("int2", 2), "'bits' must be between 3 and 32, not 2"),
    "value of no code": (lambda: mx.formats.element("e2m1").value(16), "'code' must be between 0 and 15, not 16"),
    "values of a wide format": (lambda: mx.formats.element("float32").values(), "'format' must be at most 16 bits wide"),
    "element too wide": (lambda: mx.MXFormat("float16"), "'element' must be at most 8 bits wide, not 'float16'"),
    "unknown scale format": (lambda: mx.MXFormat("e4m3", "e5m3"), "'scale' must be one of ['e8m0', 'e4m3', 'ue5m3', 'float32', 'bfloat16', 'float16'], not 'e5m3'; did you mean 'ue5m3'"),
    "block of zero": (lambda: mx.MXFormat("e4m3", "e8m0", 0), "'block' must be at least 1, not 0"),
    "scale code": (lambda: mx.formats.E8M0.value(256), "'code' must be between 0 and 255"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_sentence(case):
    call, fragment = CASES[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    message = str(caught.value)
    pattern = ".*".join(re.escape(part) for part in fragment.split(".*"))
    assert re.search(pattern, message), message
    assert re.fullmatch(r"Argument .* (must|must not) be .*[.?]", message), message
    assert "\n" not in message


def test_a_long_list_is_cut_short():
    # Regression: an error about a model with 400 tensors listed all their names.
    names = [f"layers.{i}.up_proj.weight" for i in range(400)]
    with pytest.raises(
        ValueError, match=r"'layers\.39\.up_proj\.weight'\] and 360 more, not 'layers\.77\.up_proj'"
    ) as caught:
        errors.choose("name", "layers.77.up_proj", names)
    assert str(caught.value).endswith("; did you mean 'layers.77.up_proj.weight'?")
    assert "layers.40." not in str(caught.value)


def test_joined():
    assert errors.joined(["a"]) == "a"
    assert errors.joined(["a", "b", "c"]) == "a, b or c"
