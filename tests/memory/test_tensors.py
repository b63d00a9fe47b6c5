"""Tests that functions on CPU tensors of torch return the same bits as on numpy arrays."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.memory import tensors
from tests import samples

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

SHAPE = (6, 70)


def both(*key, dtype="float32", shape=SHAPE):
    """Return a tensor and an array that have the same numbers and share no memory."""
    x = samples.generator("tensors", *key).standard_normal(shape).astype(np.float32)
    tensor = torch.from_numpy(x).to(getattr(torch, dtype))
    return tensor, tensors.host_array("x", tensor).copy()


def same(tensor, array):
    assert isinstance(tensor, torch.Tensor)
    got = tensors.host_array("x", tensor)
    assert (got.shape, got.dtype) == (array.shape, array.dtype)
    assert np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(array).tobytes()


def same_mx(made, usual):
    assert all(isinstance(part, torch.Tensor) for part in (made.codes, made.scales, made.dequantize(), made.pack()))
    assert made.equals(usual)
    assert usual.equals(made)
    same(made.codes, usual.codes)
    same(made.pack(), usual.pack())
    same(made.dequantize("bfloat16"), usual.dequantize("bfloat16"))


# The functions of `mxnum` take and return tensors, like the functions of `interop.torch`.
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_tensors_give_tensors_of_the_same_bits(dtype):
    tensor, array = both("bits", dtype=dtype)
    same_mx(mx.quantize(tensor, "mxfp8_e4m3"), mx.quantize(array, "mxfp8_e4m3"))
    same_mx(mx.quantize(tensor, "mxfp4_e2m1", packed=True), mx.quantize(array, "mxfp4_e2m1", packed=True))
    same(mx.fake_quantize(tensor, "mxfp8_e4m3"), mx.fake_quantize(array, "mxfp8_e4m3"))
    same(mx.shared_scale(tensor, "mxfp8_e4m3"), mx.shared_scale(array, "mxfp8_e4m3"))
    same(mx.encode(tensor, "e4m3"), mx.encode(array, "e4m3"))
    codes = mx.encode(tensor, "e4m3")
    same(mx.decode(codes, "e4m3", dtype=torch.float16), mx.decode(codes.numpy(), "e4m3", dtype="float16"))
    assert mx.quantize(tensor, "mxfp8_e4m3").dequantize(tensor.dtype).dtype == tensor.dtype


def test_other_types_of_codes():
    tensor, array = both("codes")
    for target in ("bfloat16", "float16"):
        same(mx.encode(tensor, target), mx.encode(array, target))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T, lambda x: x[::2, 3:], lambda x: x[:0], lambda x: x[:, :0], lambda x: x[1, 5], lambda x: x[2],
        lambda x: x[None].expand(3, *SHAPE), lambda x: x[:, 1::3].T,
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_any_strides(view, dtype):
    tensor = view(both("strides", dtype=dtype)[0])
    array = tensors.host_array("x", tensor).copy()
    same_mx(mx.quantize(tensor, "mxfp8_e4m3"), mx.quantize(array, "mxfp8_e4m3"))
    same(mx.fake_quantize(tensor, "mxfp8_e4m3"), mx.fake_quantize(array, "mxfp8_e4m3"))


def test_other_arguments_may_be_tensors():
    tensor, array = both("arguments")
    words = np.arange(array.size, dtype=np.uint32).reshape(SHAPE) << 8
    sr = {"rounding": "sr"}
    for given in (words, torch.from_numpy(words)):
        same_mx(
            mx.quantize(tensor, "mxint8", random_bits=given, **sr),
            mx.quantize(array, "mxint8", random_bits=words, **sr),
        )
    scales = mx.shared_scale(array, "mxint8", scale_rule="ceil")
    same_mx(mx.quantize(tensor, "mxint8", scales=torch.from_numpy(scales)), mx.quantize(array, "mxint8", scales=scales))
    given = mx.quantize(array, "mxint8", scales=torch.from_numpy(scales))
    assert isinstance(given.codes, np.ndarray)  # x is a numpy array, so the codes are a numpy array too
    offset = {"format": "mxint4", "offset": "float16", "rounding": "sr", "seed": 5}
    made, usual = mx.quantize(tensor, **offset), mx.quantize(array, **offset)
    same_mx(made, usual)
    same(made.offsets, usual.offsets)


def test_answers_in_tensors_of_the_caller():
    tensor, array = both("out")
    out = torch.empty(SHAPE)
    assert mx.fake_quantize(tensor, "mxfp8_e4m3", out=out) is out
    same(out, mx.fake_quantize(array, "mxfp8_e4m3"))
    again = tensor.clone()
    assert mx.fake_quantize(again, "mxfp8_e4m3", out=again) is again
    same(again, out.numpy())
    codes, scales = torch.empty(SHAPE, dtype=torch.uint8), torch.empty(6, 3, dtype=torch.uint8)
    assert mx.encode(tensor, "e4m3", out=codes) is codes
    same(codes, mx.encode(array, "e4m3"))
    assert mx.decode(codes, "e4m3", out=out) is out
    assert mx.shared_scale(tensor, "mxfp8_e4m3", out=scales) is scales
    same(scales, mx.shared_scale(array, "mxfp8_e4m3"))
    q = mx.quantize(2 * tensor, "mxfp4_e2m1", packed=True)
    assert mx.quantize(tensor, "mxfp4_e2m1", out=q) is q
    same_mx(q, mx.quantize(array, "mxfp4_e2m1"))
    assert q.dequantize(out=out) is out
    same(out, mx.fake_quantize(array, "mxfp4_e2m1"))
    room = torch.empty(6, 35, dtype=torch.uint8)
    assert q.pack(out=room) is room
    assert q.unpacked().pack(out=room) is room
    numpy_out = np.empty(SHAPE, np.float32)
    assert q.dequantize(out=numpy_out) is numpy_out
    for wrong in (torch.empty(3), torch.empty(SHAPE, dtype=torch.float64), torch.empty(1, 1).expand(SHAPE)):
        with pytest.raises(ValueError, match="Argument 'out' must be"):
            mx.fake_quantize(tensor, "mxfp8_e4m3", out=wrong)


def test_a_quantizer_is_for_tensors_too():
    tensor, array = both("quantizer")
    out = torch.empty(SHAPE)
    quantize_again = mx.fake_quantizer(tensor, "mxfp4_e2m1", out=out)
    tensor.mul_(3)
    assert quantize_again() is out
    same(out, mx.fake_quantize(3 * array, "mxfp4_e2m1"))


@pytest.mark.parametrize("packed", [False, True])
def test_parts_of_mx_arrays(packed):
    tensor, array = both("parts", shape=(4, 6, 64))
    q, usual = (mx.quantize(x, "mxfp4_e2m1", packed=packed) for x in (tensor, array))
    for part in (
        lambda a: a[1],
        lambda a: a.T,
        lambda a: a[::-1],
        lambda a: a[..., 32:],
        lambda a: a[1, 2],
        lambda a: a.unpacked(),
    ):
        same_mx(part(q), part(usual))
    assert q[1].pack().data_ptr() == q.pack()[1].data_ptr() or not packed
    host = q.to_host()
    assert isinstance(host.scales, np.ndarray)
    assert host.scales.ctypes.data == q.scales.data_ptr()
    assert host.to_host() is host
    assert isinstance(np.asarray(q), np.ndarray)
    assert np.array_equal(q, usual.dequantize())
    assert q.elements.dtype.name == "float4_e2m1fn"


def test_mx_arrays_of_tensors_and_files(tmp_path):
    tensor, array = both("files")
    q = mx.quantize(tensor, "mxfp6_e3m2", offset="float16")
    q.save(tmp_path / "q.npz")
    assert mx.MXArray.load(tmp_path / "q.npz").equals(q)
    made = mx.MXArray.from_parts(q.codes, q.scales, "mxfp6_e3m2", offsets=q.offsets)
    same_mx(made, mx.quantize(array, "mxfp6_e3m2", offset="float16"))
    assert made.codes.data_ptr() == q.codes.data_ptr()
    made = mx.MXArray.from_packed(q.pack(), q.scales, "mxfp6_e3m2", length=70, offsets=q.offsets)
    same_mx(made, q.to_host())


def test_products():
    (x, a), (w, b) = both("x", shape=(5, 64)), both("w", shape=(3, 64))
    qx, qw = mx.quantize(x, "mxfp8_e4m3"), mx.quantize(w, "mxfp4_e2m1")
    want = mx.matmul(mx.quantize(a, "mxfp8_e4m3"), mx.quantize(b, "mxfp4_e2m1").T)
    same(mx.matmul(qx, qw.T), want)
    out = torch.empty(5, 3)
    assert mx.matmul(qx, qw.T.to_host(), out=out) is out
    same(out, want)
    same(
        mx.matmul(x, w.T, accumulate="sequential", out_dtype=torch.bfloat16),
        mx.matmul(a, b.T, accumulate="sequential", out_dtype="bfloat16"),
    )
    assert isinstance(mx.matmul(a, w.T, accumulate="sequential"), np.ndarray)
    total = mx.dot(x[0], w[0], accumulate="exact")
    same(total, np.asarray(mx.dot(a[0], b[0], accumulate="exact")))
    assert total.shape == ()


def test_a_layer():
    (x, a), (w, b) = both("layer x", shape=(2, 5, 64)), both("layer w", shape=(32, 64))
    bias = torch.ones(32)
    y, context = mx.linear_forward(x, w, bias)
    usual, its = mx.linear_forward(a, b, bias.numpy())
    same(y, usual)
    gradients = mx.linear_backward(y, context)
    for mine, other in zip(gradients, mx.linear_backward(usual, its), strict=True):
        same(mine, other)
    rooms = [torch.empty_like(part) for part in gradients]
    assert all(part is room for part, room in zip(mx.linear_backward(y, context, out=rooms), rooms, strict=True))
    with pytest.raises(TypeError, match="'weight' must not require a gradient"):
        mx.linear_forward(x, torch.nn.Linear(64, 32).weight)


def test_tensors_that_require_a_gradient_raise():
    # Accepting a tensor that requires a gradient would silently lose the gradient.
    weight = torch.nn.Parameter(torch.ones(4, 32))
    calls = (
        lambda: mx.fake_quantize(weight, "mxfp8_e4m3"), lambda: mx.quantize(weight, "mxfp8_e4m3"),
        lambda: mx.encode(weight, "e4m3"), lambda: mx.matmul(weight, weight.T, accumulate="exact"),
        lambda: mx.fake_quantize(torch.zeros(4, 32), "mxfp8_e4m3", out=weight),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(
            TypeError,
            match=r"must not require a gradient, .*tensor\.detach\(\), .*torch\.no_grad\(\), or use mxnum\.torch",
        ):
            call()
    want = np.ones((4, 32), np.float32)
    same(mx.fake_quantize(weight.detach(), "mxfp8_e4m3"), want)
    with torch.no_grad():
        same(mx.fake_quantize(weight, "mxfp8_e4m3"), want)

    class StraightThrough(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return mx.fake_quantize(x, "mxfp8_e4m3")

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    StraightThrough.apply(weight).sum().backward()
    same(weight.grad, want)
    with pytest.raises(TypeError, match="'x' must not require a gradient"):
        torch.func.grad(lambda w: mx.fake_quantize(w, "mxfp8_e4m3").sum())(torch.ones(4, 32))
    with pytest.raises(TypeError, match="'x' must be a tensor that numpy can read"), torch.no_grad():
        torch.vmap(lambda w: mx.fake_quantize(w, "mxfp8_e4m3"))(torch.ones(4, 32))


def test_tensors_whose_memory_has_other_numbers_raise():
    negated = torch.imag(torch.ones(32, dtype=torch.complex64).conj())
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    with fake.FakeTensorMode():
        imagined = torch.ones(32)
    wrong = {
        negated: r"without a lazy negation \(tensor.resolve_neg\(\)\)",
        torch.eye(32).to_sparse(): r"dense \(tensor.to_dense\(\)\), not torch.sparse_coo",
        torch.ones(32, device="meta"): r"on the CPU or a CUDA device \(tensor.cpu\(\)\), not 'meta'",
        torch.ones(32).to_mkldnn(): "dense",
        imagined: "a tensor that numpy can read, not FakeTensor of torch.float32",
        torch.ones(32, dtype=torch.int64): "an array of float64, float32, bfloat16 or float16, not int64",
        torch.ones(32, dtype=torch.bool): "not bool",
        torch.ones(32, dtype=torch.complex64): "not complex64",
        torch.ones(32).to(torch.float8_e4m3fn): "not float8_e4m3fn",
        torch.zeros(32, dtype=torch.uint8).view(torch.float4_e2m1fn_x2): "not void8",
    }
    for tensor, message in wrong.items():
        with pytest.raises((TypeError, ValueError), match=message) as raised:
            mx.quantize(tensor, "mxfp8_e4m3")
        assert str(raised.value).startswith("Argument 'x' must be")
    same(mx.fake_quantize(negated.resolve_neg(), "mxfp8_e4m3"), np.full(32, -0.0, np.float32))


def test_tensor_subclasses_in_ordinary_memory_are_accepted():
    class Mine(torch.Tensor):
        pass

    assert type(mx.fake_quantize(torch.ones(32).as_subclass(Mine), "mxfp8_e4m3")) is torch.Tensor
    frozen = torch.nn.Parameter(torch.ones(32), requires_grad=False)
    assert type(mx.fake_quantize(frozen, "mxfp8_e4m3")) is torch.Tensor
    with torch.inference_mode():
        same(mx.fake_quantize(torch.ones(32), "mxfp8_e4m3"), np.ones(32, np.float32))


def test_memory_that_was_read_may_still_be_resized():
    # Regression: after mxnum had read a tensor, torch could not resize its memory. Sharded training
    # resizes memory to free parameters between layers.
    tensor = torch.ones(4, 32)
    mx.fake_quantize(tensor, "mxfp8_e4m3", out=tensor)
    tensor.untyped_storage().resize_(0)
    array = tensors.host_array("x", torch.arange(6.0).reshape(2, 3).T)
    assert array.tolist() == [[0, 3], [1, 4], [2, 5]]  # the array keeps the tensor alive


def test_arrays_that_tensors_cannot_share_are_copied():
    locked = np.ones(4, np.float32)
    locked.flags.writeable = False
    for array in (locked, np.arange(4.0)[::-1]):
        same(tensors.as_tensor(array), array)
        assert tensors.as_tensor(array).data_ptr() != array.ctypes.data


def test_error_about_random_bits_names_the_module_that_accepts_them():
    x, words = torch.zeros(4, 32), torch.randint(1 << 32, (4, 32))
    with pytest.raises(TypeError, match=r"mxnum\.interop\.torch accepts integers of any type"):
        mx.fake_quantize(x, "mxfp4_e2m1", rounding="sr", random_bits=words)
