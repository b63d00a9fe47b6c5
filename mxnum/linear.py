"""The three products of a linear layer, with each operand quantized along the summed axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mxnum import errors, formats
from mxnum.array import MXArray
from mxnum.array.arguments import checked_threads
from mxnum.formats import FLOATS, MXFormat
from mxnum.memory.dtypes import Array, float_array, numpy_dtype, result_format
from mxnum.memory.tensors import answer, host_view
from mxnum.modes import Accumulate
from mxnum.ops import quantize
from mxnum.products import RESULTS, accumulation, checked_host_out, matmul, narrowed
from mxnum.units import MatrixUnit

#: How an operand is quantized: None for no quantization, a format, or a mapping of keywords of
#: `quantize` that includes ``"format"``.
Quantization = str | MXFormat | Mapping[str, Any] | None

_KEYWORDS = ("format", "block_size", "rounding", "scale_rule", "overflow", "nonfinite", "seed", "stream", "sr_bits")


@dataclass(frozen=True, eq=False)
class LinearContext:
    """The data of a forward pass that `linear_backward` needs, and the quantized operands."""

    #: The input before quantization, as a matrix with one row for each sample, and the weight
    #: before quantization.
    x: Array
    weight: Array
    #: The operands of the product: input and weight, quantized along the input features. If the
    #: caller passed None instead of a format for an operand, the operand is not quantized.
    operand_x: MXArray | Array
    operand_weight: MXArray | Array
    shape: tuple[int, ...]
    activations: Mapping[str, Any] | None
    weights: Mapping[str, Any] | None
    accumulate: Accumulate | MatrixUnit
    out_dtype: str


class LinearGradients(NamedTuple):
    """The gradients of the input, the weight and the bias."""

    x: Array
    weight: Array
    bias: Array


def linear_forward(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    activations: Quantization = "mxfp8_e4m3",
    weights: Quantization = "mxfp8_e4m3",
    accumulate: str | Accumulate | MatrixUnit = "block",
    out_dtype: Any = "float32",
    threads: int | None = None,
    out: Array | None = None,
) -> tuple[Array, LinearContext]:
    """Return y = x W^T + bias and a context for `linear_backward`.

    Both operands are quantized along the input features.

    Parameters
    ----------
    x, weight, bias
        Floats of shapes (..., inputs), (outputs, inputs) and (outputs,).
    activations, weights
        How x and the weight are quantized: a format, or a mapping of keywords of `quantize`
        (block_size, rounding, scale_rule, overflow, nonfinite, seed, stream, sr_bits) with the
        format under ``"format"``. None leaves the operand as it is, and cannot be combined with
        ``accumulate="block"``.
    accumulate
        How the products are summed: an `Accumulate`, or a matrix unit or its name, as in `matmul`.
    out_dtype
        float32, bfloat16 or float16. The bias is rounded to float32 and added in float32. A result
        in bfloat16 or float16 is rounded once more at the end.
    threads
        The largest number of threads to use, as in `matmul` and `quantize`. The result does not
        depend on `threads`.
    out
        An array of y's shape and dtype, to which the function writes y.

    The context keeps x and the weight without copying, so do not change these arrays before
    `linear_backward`.

    Every operand of a layer is quantized twice, along two axes. For example, x is quantized along
    the inputs here, and along the samples for the weight's gradient. With ``rounding="sr"`` the
    first quantization draws random words from stream ``2 * stream`` of the seed, and the second
    quantization from stream ``2 * stream + 1``. Operands with the same seed and stream draw the
    same random words, so give each operand its own stream.

    Examples
    --------
    >>> import numpy as np, mxnum as mx
    >>> x, weight = np.linspace(-1, 1, 128).reshape(2, 64), np.linspace(0, 2, 192).reshape(3, 64)
    >>> y, context = mx.linear_forward(x, weight, weights="mxfp4_e2m1", out_dtype="bfloat16")
    >>> gradients = mx.linear_backward(y, context, gradients={"format": "mxfp8_e5m2", "rounding": "sr", "seed": 1})
    >>> gradients.x.shape, gradients.weight.shape, gradients.bias.shape
    ((2, 64), (3, 64), (3,))
    """
    inputs, weight_array = float_array("x", x)[0], float_array("weight", weight)[0]
    errors.require(inputs.ndim >= 1, "x", "of at least one axis", inputs.shape)
    errors.require(weight_array.ndim == 2, "weight", "a matrix", weight_array.shape)
    outputs, features = weight_array.shape
    errors.require(inputs.shape[-1] == features, "weight", f"of {inputs.shape[-1]} columns", features)
    if bias is not None:
        bias, bias_format = float_array("bias", bias)
        errors.require(bias.shape == (outputs,), "bias", f"of shape {(outputs,)}", bias.shape)
    mode = accumulation(accumulate)
    target = result_format(out_dtype, "out_dtype", RESULTS).name
    of_x, of_weight = _options("activations", activations), _options("weights", weights)
    _check_blocks("activations", of_x, "weights", of_weight, mode)

    threads, shape = checked_threads(threads), (*inputs.shape[:-1], outputs)
    into = checked_host_out(host_view("out", out), shape, numpy_dtype(FLOATS[target]))

    rows = inputs.reshape(-1, features) if features else inputs.reshape(int(np.prod(inputs.shape[:-1])), 0)
    operand_x = _quantized(rows, of_x, 1, 0, threads)
    operand_weight = _quantized(weight_array, of_weight, 1, 0, threads)
    of_x_name, of_weight_name = "activations" if of_x else "x", "weights" if of_weight else "weight"
    _check_operands(mode, (of_x_name, operand_x), (of_weight_name, operand_weight))
    matrix = (len(rows), outputs)
    room = _room(into, matrix, inputs, weight_array, bias) if target == "float32" else None
    y = matmul(operand_x, operand_weight.T, accumulate=mode, out_dtype="float32", threads=threads, out=room)
    if bias is not None:
        from mxnum.engine.products.sums import add_to_rows

        add_to_rows(y, narrowed(np.ascontiguousarray(bias), bias_format, FLOATS["float32"]))
    context = LinearContext(rows, weight_array, operand_x, operand_weight, inputs.shape, of_x, of_weight, mode, target)
    return answer(_stored(_narrowed(y, target), shape, into), x, out), context


def linear_backward(
    grad_y: Any,
    context: LinearContext,
    *,
    gradients: Quantization = "mxfp8_e5m2",
    threads: int | None = None,
    out: Sequence[Array | None] | None = None,
) -> LinearGradients:
    """Return the gradients of `linear_forward`, given the gradient of y.

    The gradient of x is grad_y W, with both operands quantized along the outputs. The gradient of
    the weight is grad_y^T x, with both operands quantized along the samples. The gradient of the
    bias is the sum of grad_y over the samples. For this sum, grad_y is rounded to float32 but not
    quantized, and its rows are added in order in float32.

    `gradients` says how to quantize grad_y. All other options are the same as in the forward pass.
    `threads` means the same as in `matmul`. `out` is a `LinearGradients`, or another sequence of
    three arrays to write to. For each item of `out` that is None, the function makes a new array.
    """
    errors.require_type(isinstance(context, LinearContext), "context", "a LinearContext", type(context).__name__)
    grad = float_array("grad_y", grad_y)[0]
    shape = (*context.shape[:-1], len(context.weight))
    errors.require(grad.shape == shape, "grad_y", f"of shape {shape}", grad.shape)
    of_grad = _options("gradients", gradients)
    _check_blocks("gradients", of_grad, "weights", context.weights, context.accumulate)
    _check_blocks("gradients", of_grad, "activations", context.activations, context.accumulate)
    threads, results = checked_threads(threads), _checked_results(out, context)
    grad = grad.reshape(len(context.x), len(context.weight))
    modes: Any = {"accumulate": context.accumulate, "out_dtype": context.out_dtype, "threads": threads}
    inputs = grad, context.x, context.weight
    shapes = context.x.shape, context.weight.shape, (1, len(context.weight))
    rooms = [_room(array, shape, *inputs) for array, shape in zip(results, shapes, strict=True)]
    products = (
        (_quantized(grad, of_grad, 1, 0, threads), _quantized(context.weight, context.weights, 0, 1, threads), modes),
        (_quantized(grad, of_grad, 0, 1, threads).T, _quantized(context.x, context.activations, 0, 1, threads), modes),
        (np.ones((1, len(grad)), np.float32), grad, {**modes, "accumulate": "sequential"}),
    )
    name, weight = "gradients" if of_grad else "grad_y", "weights" if context.weights else "weight"
    _check_operands(context.accumulate, (name, products[0][0]), (weight, products[0][1].T))
    made = [matmul(a, b, **how, out=room) for (a, b, how), room in zip(products, rooms, strict=True)]
    final = context.shape, context.weight.shape, context.weight.shape[:1]
    stored = [_stored(y, shape, array) for y, shape, array in zip(made, final, results, strict=True)]
    return LinearGradients(*map(answer, stored, [grad_y] * 3, [None] * 3 if out is None else out))


def _checked_results(out: Sequence[Array | None] | None, context: LinearContext) -> list[Any]:
    if out is None:
        return [None] * 3
    errors.require_type(isinstance(out, tuple | list), "out", "a LinearGradients", type(out).__name__)
    errors.require(len(out) == 3, "out", "three arrays", len(out))
    shapes = context.shape, context.weight.shape, context.weight.shape[:1]
    dtype = numpy_dtype(FLOATS[context.out_dtype])
    return [checked_host_out(host_view("out", array), shape, dtype) for array, shape in zip(out, shapes, strict=True)]


def _room(out: Any, shape: tuple[int, ...], *inputs: Any) -> Any:
    """Return `out` as a matrix, or None if the product cannot write to `out` directly.

    The product cannot write to `out` if `out` overlaps an input or is not in C order.
    """
    if out is None or not out.flags.c_contiguous:
        return None
    if any(isinstance(x, np.ndarray) and np.may_share_memory(out, x) for x in inputs):
        return None
    return out.reshape(shape)


def _stored(y: Array, shape: tuple[int, ...], out: Any) -> Array:
    """Return `y` in the given shape; if `out` is given, copy `y` to `out` and return `out`."""
    if out is None:
        return y.reshape(shape)
    if not np.may_share_memory(y, out):
        out[...] = y.reshape(shape)
    result: Array = out
    return result


def _options(argument: str, value: Quantization) -> Mapping[str, Any] | None:
    """Return `value` as a dictionary of keywords of `quantize`, with an `MXFormat` as format."""
    if value is None:
        return None
    options = dict(value) if isinstance(value, Mapping) else {"format": value}
    for name in options:
        errors.choose(f"{argument} keyword", name, _KEYWORDS)
    if "format" not in options:
        raise ValueError(f"Argument {argument!r} must be a mapping with a 'format'.")
    options["format"] = formats.get(options["format"])
    return options


def _check_blocks(
    first: str,
    a: Mapping[str, Any] | None,
    second: str,
    b: Mapping[str, Any] | None,
    accumulate: Accumulate | MatrixUnit,
) -> None:
    """Raise ValueError if `accumulate` sums by block and the operands do not have equal blocks.

    Without this check `matmul` would raise an error whose message names `a` and `b` instead of this
    module's arguments.
    """
    if isinstance(accumulate, MatrixUnit) or not accumulate.by_block:
        return
    for name, options in ((first, a), (second, b)):
        if options is None:
            raise ValueError(f"Argument {name!r} must not be None with accumulate='block'.")
    sizes = [(options.get("block_size") or options["format"].block) for options in (a, b) if options is not None]
    accepted = f"in blocks of {sizes[1]} like {second!r} with accumulate='block'"
    errors.require(sizes[0] == sizes[1], first, accepted, sizes[0])


def _check_operands(accumulate: Accumulate | MatrixUnit, *named: tuple[str, Any]) -> None:
    """Raise an error that names the operand, if a matrix unit cannot multiply the operand."""
    if isinstance(accumulate, MatrixUnit):
        from mxnum.array.unit_operands import unit_operand

        for name, operand in named:
            unit_operand(name, operand, accumulate)


def _quantized(x: Array, options: Mapping[str, Any] | None, axis: int, which: int, threads: int | None) -> Any:
    """Return x quantized along an axis, or x itself if `options` is None.

    `which` is 0 for an operand's first quantization and 1 for the second, so that each of the two
    draws random bits from its own stream.
    """
    if options is None:
        return x
    keywords = dict(options)
    if "stream" in keywords or keywords.get("seed") is not None:
        stream = errors.integer("stream", keywords.get("stream", 0), 0, (1 << 63) - 1)
        keywords["stream"] = 2 * stream + which
    return quantize(x, keywords.pop("format"), axis=axis, threads=threads, **keywords)


def _narrowed(y: Array, target: str) -> Array:
    return narrowed(y, FLOATS["float32"], FLOATS[target])
