"""Tests of float scales and tensor scales through the public API."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mxnum as mx
from mxnum import formats, reference
from tests import float_scale_cases as cases
from tests.samples import generator

ROOT = Path(__file__).parents[1]
X = generator("float scales").normal(size=(4, 64)).astype(np.float32)
WIDE = "e4m3:block=128,scale=float32"


def test_random_cases_without_compilation():
    """Check random cases of all modes, layouts and types without numba, to save time."""
    code = "from tests.float_scale_cases import run_cases; run_cases(1, 200)"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "200 cases are the same", done.stderr


#: Cases (format, dtype, layout, options); each compiles one or two loops.
COMPILED = {
    "comparisons along rows": ("nvfp4", "float32", {}, {}),
    "a tensor scale for each row": ("nvfp4", "bfloat16", {}, {"tensor_scale": "row", "rounding": "rto"}),
    "comparisons along columns": ("nvfp4", "float32", {"axis": 0}, {"rounding": "rna"}),
    "float64": ("nvfp4", "float64", {}, {"scale_rule": "rceil", "rounding": "rtz"}),
    "comparisons of float16": ("int4:block=5,scale=float16", "float16", {}, {}),
    "quotients": (WIDE, "float32", {"block_shape": (3, 32)}, {}),
    "quotients that overflow": (WIDE, "bfloat16", {}, {"rounding": "rtp", "overflow": "ieee", "scale_rule": "rceil"}),
    "quotients of float64": ("e5m2:scale=float16,tensor_scale=float32", "float64", {}, {"rounding": "rtn"}),
    "stochastic": ("nvfp4", "float32", {}, {"rounding": "sr", "seed": 3}),
    "four over six": ("nvfp4", "float32", {}, {"scale_rule": "four_over_six_squared"}),
    "four over six in tiles": ("nvfp4", "float16", {"block_shape": (4, 4)}, {"scale_rule": "four_over_six_absolute"}),
}


#: The cases of the fast tier, each with one memory layout. The other cases are left to the full
#: tier, because each case must be compiled, which takes nearly all of its time.
SAMPLE = "comparisons along rows", "four over six"


@pytest.mark.parametrize(
    ("what", "orders"),
    [(w, "kept") for w in SAMPLE] + [pytest.param(w, "any", marks=pytest.mark.full) for w in COMPILED],
)
def test_compiled(what, orders):
    name, dtype, layout, options = COMPILED[what]
    rng, fmt = generator(what), formats.get(name)
    # Together, the cases decode to all four float types.
    decoded = cases.DTYPES[[*COMPILED].index(what) % 4].name
    for shape in ((6, 70), (3, 160)):
        for _ in range(6):
            x = cases.numbers(rng, shape, np.dtype(dtype) if dtype != "bfloat16" else cases.DTYPES[2])
            blocks = mx.layout.resolve_blocks(shape, fmt.block, **layout)
            given, drawn = dict(options), rng if orders == "any" else generator(what, orders)
            if "seed" in given:
                words = reference.random_words(shape, seed=given.pop("seed"))
                cases.check(x, name, layout, blocks, {**given, "random_bits": words}, drawn, decoded)
                assert mx.quantize(x, name, **options).equals(mx.quantize(x, name, random_bits=words, **given))
            else:
                cases.check(x, name, layout, blocks, given, drawn, decoded)


def test_the_definition_takes_what_fast_loops_leave():
    """Check blocks that have infinities, or a scale that is NaN, infinite or zero."""
    x = X.copy()
    x[1, 3], x[2, 40] = np.inf, np.nan
    scales = np.full((4, 4), 0x38, np.uint8)
    scales[0, 1], scales[3, 2] = 0x7F, 0
    cases.check(
        x, "nvfp4", {}, (1, 16), {"scales": scales, "tensor_scale": np.float32(0.5)[()].reshape(())}, generator()
    )
    growing = x * np.exp2(np.float32([[0], [4], [8], [12]]))
    cases.check(growing, "nvfp4", {}, (1, 16), {"tensor_scale": "row"}, generator())
    wide = np.ones((4, 1), np.float32)
    wide[0], wide[1] = np.inf, 0
    cases.check(x, WIDE, {}, (1, 128), {"scales": wide, "nonfinite": "element"}, generator())


def test_threads_change_nothing():
    x = generator("threads").normal(size=(512, 4096)).astype(np.float32)
    one, several = (mx.quantize(x, "nvfp4", threads=n) for n in (1, 3))
    assert one.equals(several)
    assert cases.same(one.dequantize(threads=1), several.dequantize(threads=3))
    columns = (mx.fake_quantize(x.reshape(2, -1), "nvfp4", threads=n) for n in (1, 3))
    assert cases.same(*columns)


# Stored arrays


def test_parts_of_an_array():
    q = mx.quantize(X, "nvfp4")
    assert repr(q) == "<MXArray nvfp4 (4, 64), blocks (1, 16), a tensor scale: 148 bytes packed>"
    assert (q.nbytes, q.packed_nbytes, q.packed().nbytes) == (256 + 16 + 4, 148, 148)
    assert q.tensor_scale == np.float32(np.abs(X).max() / np.float32(2688))
    assert q.scales.dtype == np.uint8
    wide = mx.quantize(X, WIDE)
    assert (wide.scales.dtype, wide.packed_nbytes, wide.tensor_scale) == (np.float32, 256 + 16, None)
    for array in (q, wide, q.packed()):
        again = mx.MXArray.from_parts(
            array.codes, array.scales, array.format, blocks=array.blocks, tensor_scale=array.tensor_scale
        )
        assert again.equals(array)
    again = mx.MXArray.from_packed(q.pack(), q.scales, "nvfp4", length=64, tensor_scale=q.tensor_scale)
    assert again.equals(q)
    assert not again.equals(mx.MXArray.from_parts(q.codes, q.scales, "nvfp4", tensor_scale=2.0))


@pytest.mark.parametrize("tensor_scale", [None, "row"])
def test_views_keep_the_scales_that_belong_to_them(tensor_scale):
    q = mx.quantize(X.reshape(2, 2, 64), "nvfp4", tensor_scale=tensor_scale)
    values = q.dequantize()
    for view, of_values in (
        (q[1], values[1]),
        (q[:, 1:], values[:, 1:]),
        (q[1, 0, 16:48], values[1, 0, 16:48]),
        (q.T, values.T),
        (q.T[16:32, :, 1], values.T[16:32, :, 1]),
        (q.transpose(1, 0, 2)[1], values.transpose(1, 0, 2)[1]),
        (q.packed()[0, 1], values[0, 1]),
    ):
        assert cases.same(view.dequantize(), of_values)


@pytest.mark.parametrize(
    "name", ["nvfp4", WIDE, "e2m1:scale=ue5m3", "int8:block=7,scale=bfloat16", "e3m2:scale=float16"]
)
def test_files(tmp_path, name):
    several = [{}, {"tensor_scale": "row"}] if formats.get(name).tensor_scale else [{}]
    for x, options in [(X, options) for options in several] + [(np.float32(3), {})]:
        q = cases.made_by_the_reference(x, name, **options)
        q.save(tmp_path / "q.npz")
        assert mx.MXArray.load(tmp_path / "q.npz").equals(q)


def test_out_and_again():
    q, room = mx.quantize(X, "nvfp4"), mx.quantize(np.zeros_like(X), "nvfp4")
    assert mx.quantize(X, "nvfp4", out=room) is room
    assert room.equals(q)
    x, out = np.zeros_like(X), np.empty_like(X)
    again = mx.fake_quantizer(x, "nvfp4", out=out)
    for factor in (1, 8):  # the factors make the tensor scales of the two calls differ
        x[...] = X * np.float32(factor)
        assert cases.same(again(), mx.fake_quantize(x, "nvfp4"))
    assert cases.same(mx.shared_scale(X, "nvfp4"), q.scales)
    assert cases.same(mx.shared_scale(X, "nvfp4", tensor_scale=0.25, scale_rule="rceil"),
                      mx.quantize(X, "nvfp4", tensor_scale=0.25, scale_rule="rceil").scales)  # fmt: skip
    assert mx.shared_scale(X, WIDE).dtype == np.float32


#: Functions that return a part of an array. The part keeps the tensor scale of the whole array.
PARTS = {
    "rows": lambda q: q[:2],
    "a row": lambda q: q[1],
    "nothing": lambda q: q[:0],
    "columns": lambda q: q[:, 16:],
    "with a step": lambda q: q[::2],
    "transposed": lambda q: q.T[:, 2:],
    "a part of a part": lambda q: q[:3][1:2],
    "a view of a part": lambda q: q[:2].T[:].to_host(),
    "codes apart": lambda q: q[:2].packed(),
}


@pytest.mark.parametrize("tensor_scale", [None, np.ones((1, 1), np.float32)])
@pytest.mark.parametrize("what", PARTS)
def test_a_part_keeps_the_tensor_scale_that_the_rest_has(what, tensor_scale):
    """Check that quantizing into a part of an array never changes the array's tensor scale."""
    q, before = (mx.quantize(X, "nvfp4", tensor_scale=tensor_scale) for _ in range(2))
    part = PARTS[what](q)
    x, has = part.dequantize() / 4, part.tensor_scale
    for other in (None, np.nextafter(has, np.float32(2)), np.full_like(has, 0.5)):
        if tensor_scale is None or other is not None:  # if `other` is None, the computed tensor scale is a scalar
            with pytest.raises(ValueError, match="'out' must be a whole array, not a part"):
                mx.quantize(x, "nvfp4", blocks=part.blocks, tensor_scale=other, out=part)
        assert q.equals(before)
    options = {"blocks": part.blocks, "tensor_scale": has}
    want = mx.quantize(x, "nvfp4", **options)
    assert mx.quantize(x, "nvfp4", out=part, **options).equals(want)
    assert np.array_equal(q.tensor_scale, before.tensor_scale)


def test_what_has_a_tensor_scale_of_its_own_takes_another():
    q = mx.quantize(X, "nvfp4")
    for whole in (q, q[:], q[::-1], q.T, q.packed()):
        x = 8 * whole.dequantize()
        want = mx.quantize(x, "nvfp4", blocks=whole.blocks)
        assert mx.quantize(x, "nvfp4", blocks=whole.blocks, out=whole).equals(want)
    largest = np.unravel_index(np.abs(X).argmax(), X.shape)[0]
    q, row = mx.quantize(X, "nvfp4"), slice(largest, largest + 1)
    # X[row] alone has the same tensor scale as X, so quantizing into this part of q succeeds.
    assert mx.quantize(X[row], "nvfp4", out=q[row]).equals(q[row])
    q = mx.quantize(X, "nvfp4", tensor_scale="row")
    kept = q[2:].dequantize()
    mx.quantize(8 * X[:2], "nvfp4", tensor_scale="row", out=q[:2])
    assert q[:2].equals(mx.quantize(8 * X[:2], "nvfp4", tensor_scale="row"))
    with pytest.raises(ValueError, match="'out' must be a whole array, not a part"):
        mx.quantize(X[2:, :16] / 2, "nvfp4", tensor_scale="row", out=q[2:, :16])
    assert cases.same(q[2:].dequantize(), kept)


@pytest.mark.parametrize("how", ["exact", "sequential", "blas"])
def test_products_take_the_values(how):
    q = mx.quantize(X, "nvfp4")
    values = q.dequantize("float64")
    assert cases.same(mx.matmul(q, q.T, accumulate=how), mx.matmul(values, values.T, accumulate=how))
    assert mx.dot(q[0], q[1], accumulate=how) == mx.dot(values[0], values[1], accumulate=how)
    y, _ = mx.linear_forward(X, X, activations="nvfp4", weights="mxfp4_e2m1", accumulate="sequential")
    assert cases.same(y, mx.matmul(values, mx.quantize(X, "mxfp4_e2m1").T, accumulate="sequential"))


# Errors


def q_of(name="nvfp4"):
    return mx.quantize(X, name)


REFUSED = {
    "a rule of E8M0": (lambda: mx.quantize(X, "nvfp4", scale_rule="floor"), "'scale_rule' must be one of ['nearest', 'rceil', "),
    "a rule of floats": (lambda: mx.quantize(X, "mxint8", scale_rule="nearest"), "'scale_rule' must be one of ['floor', "),
    "two scales": (lambda: mx.quantize(X, WIDE, scale_rule="four_over_six_squared"), "'scale_rule' must be 'nearest' or 'rceil' for e4m3"),
    "offsets": (lambda: mx.quantize(X, "nvfp4", offset="float16"), "'offset' must be left out for nvfp4, whose scales are e4m3"),
    "a tensor scale": (lambda: mx.quantize(X, "mxint8", tensor_scale=1.0), "'tensor_scale' must be left out for mxint8, which has none"),
    "none": (lambda: mx.MXArray.from_parts(q_of().codes, q_of().scales, "nvfp4"), "'tensor_scale' must be given for nvfp4"),
    "negative": (lambda: mx.quantize(X, "nvfp4", tensor_scale=-1.0), "'tensor_scale' must be positive and finite, not -1.0"),
    # Regression: for a value without axes, the message contained the useless index ().
    "not a number": (lambda: mx.quantize(X, "nvfp4", tensor_scale=float("nan")), "'tensor_scale' must be positive and finite, not nan."),
    "too exact": (lambda: mx.quantize(X, "nvfp4", tensor_scale=0.1), "'tensor_scale' must be a float32 number, not 0.1"),
    "another word": (lambda: mx.quantize(X, "nvfp4", tensor_scale="column"), "'tensor_scale' must be one of ['row']"),
    "a shape": (lambda: mx.quantize(X, "nvfp4", tensor_scale=np.ones(4, np.float32)), "'tensor_scale' must be without axes, or of 2"),
    "tiles": (lambda: mx.quantize(X, "nvfp4", block_shape=(2, 2), tensor_scale="row"), "'tensor_scale' must be left out if a block spans several rows"),
    "a sign": (lambda: mx.quantize(X, "nvfp4", scales=np.full((4, 4), 0x80, np.uint8)), "'scales' must be without a sign bit, not 128 at index (0, 0)"),
    "minus zero": (lambda: mx.quantize(X, WIDE, scales=np.full((4, 1), -0.0, np.float32)), "'scales' must be without a sign bit, not -0.0"),
    "codes for floats": (lambda: mx.quantize(X, WIDE, scales=np.zeros((4, 1), np.uint8)), "'scales' must be a float32 array, not 'uint8'"),
    "offsets of parts": (lambda: mx.MXArray.from_parts(q_of().codes, q_of().scales, "nvfp4", tensor_scale=1.0, offsets=np.zeros((4, 4), np.float16)), "'offsets' must be left out for nvfp4"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what):
    call, message = REFUSED[what]
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    assert message in str(caught.value)


def test_what_knows_e8m0_alone_says_so():
    from mxnum.lab.mlp.config import Experiment, uniform_precision

    with pytest.raises(ValueError, match="'weights' must be in a format with E8M0 scales"):
        Experiment(precision=uniform_precision("nvfp4"))
