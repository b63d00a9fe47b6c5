"""Quantize, encode and decode arrays: this module checks arguments, and `mxnum.engine` computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mxnum import errors, formats, stacks
from mxnum.array.arguments import (
    checked_codes,
    checked_out,
    checked_scales,
    checked_tensor_scale,
    checked_threads,
    copied_if_overlapping,
    host_options,
    owned,
)
from mxnum.array.mx_array import MXArray, held_parts, held_tensor_scale
from mxnum.engine import dispatch
from mxnum.engine.request import Choices, RandomBits, Request, Settings, checked_settings
from mxnum.formats import ElementFormat, MXFormat
from mxnum.memory.device import on_device
from mxnum.memory.dtypes import Array, as_array, code_dtype, float_array, numpy_dtype, result_format, scale_dtype
from mxnum.memory.tensors import answer, host_view, in_kind, is_tensor
from mxnum.modes import FloatScaleRule, Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule

_DETERMINISTIC = tuple(mode for mode in Rounding if not mode.is_stochastic)
_DEFAULTS = Rounding.RNE, Overflow.SATURATE, Nonfinite.BLOCK
_LARGEST_WORD, _LARGEST_INDEX = (1 << 64) - 1, (1 << 62) - 1


def quantize(
    x: Any,
    format: str | MXFormat,
    *,
    axis: int | None = None,
    rounding: str | Rounding = "rne",
    scale_rule: str | ScaleRule | FloatScaleRule | None = None,
    overflow: str | Overflow = "saturate",
    nonfinite: str | Nonfinite = "block",
    block_size: int | None = None,
    block_shape: Sequence[int] | None = None,
    blocks: Sequence[int] | None = None,
    scales: Any = None,
    tensor_scale: Any = None,
    arithmetic: str = "exact",
    offset: str | None = None,
    offset_range: str | OffsetRange = "exact",
    random_bits: Any = None,
    seed: int | None = None,
    stream: int = 0,
    first: int = 0,
    sr_bits: int = 30,
    packed: bool = False,
    threads: int | None = None,
    out: MXArray | None = None,
) -> MXArray:
    """Quantize an array of float64, float32, bfloat16 or float16 to an MX format.

    Parameters
    ----------
    x
        The array to quantize, with any shape, strides and byte order. A list of Python floats is
        treated as float64. If x is a PyTorch tensor, the result holds tensors, as in every function
        of this module.
    format
        An `MXFormat`, or a name that `mxnum.formats.get` accepts.
    axis, block_size
        `block_size` consecutive elements along `axis` share a scale. By default, `block_size` is
        the block size of the format, and `axis` is the last axis.
    block_shape
        ``(r, c)``: each tile of r by c elements of the last two axes shares a scale.
    blocks
        The length of a block along every axis, instead of `axis`, `block_size` and `block_shape`.
    rounding, scale_rule, overflow, nonfinite
        The modes: see `Rounding`, `Overflow` and `Nonfinite`. For E8M0 scales, `scale_rule` is a
        `ScaleRule` (default: ``"floor"``). For other scales, it is a `FloatScaleRule` (default:
        ``"nearest"``).
    scales
        Scales to use instead of a rule, of shape ``ceil(x.shape / blocks)``: E8M0, E4M3 or UE5M3
        codes as uint8, or floats for a format whose scales have 16 or 32 bits.
    tensor_scale
        For formats with a tensor scale (``nvfp4``): a positive number, or a float32 array of the
        shape of `MXArray.tensor_scale`. ``"row"`` computes one tensor scale for each row along the
        last axis. By default one tensor scale is computed for the whole array.
    arithmetic
        ``"exact"`` follows the definition. For ``nvfp4``, `arithmetic` may also name a stack of
        `mxnum.stacks`, to reproduce the stack's float32 operations bit for bit. A stack has fixed
        modes, computes its own scales, and uses no random bits, so the arguments for modes, scales
        and random bits must be left out. To set the stack's global scale, call
        `mxnum.stacks.quantize`.
    offset
        ``"float16"`` selects asymmetric scaling: the midpoint of each block, rounded to float16, is
        subtracted before scaling. `offset_range` selects the magnitude that determines the scale
        (see `OffsetRange`).
    random_bits
        For ``rounding="sr"``: an array of the shape of x with unsigned 32-bit words. Only the low
        `sr_bits` bits of each word are used.
    seed, stream, first
        These arguments replace `random_bits`: the generator Philox4x32-10 draws the random words.
        Its key is `seed`, and its counter consists of `stream` and the C-order index of the
        element. The words depend neither on the number of threads, nor on the device, nor on the
        memory layout. `first` is the index of the first element of x (default: 0). If x is a part
        of a larger array, pass the index that the first element of x has in the larger array. Each
        element then gets the same random bits as in the larger array.
    packed
        True packs codes narrower than a byte, as `MXArray.pack` does. Quantizing a large array is
        faster with packing.
    threads
        The number of threads that may work on a large array (default: the number set by
        `NUMBA_NUM_THREADS` or `numba.set_num_threads`). The result does not depend on `threads`.
    out
        The MX array to write to, packed or not, with the shape, format and blocks of the result.
        `out` saves time, because allocating new memory takes longer than quantizing. In host memory
        `out` may overlap any input. If `out` is a part of an array with one tensor scale, pass this
        scale as `tensor_scale`, because a part cannot get a tensor scale of its own.

    Examples
    --------
    >>> import numpy as np, mxnum as mx
    >>> q = mx.quantize(np.array([0.1, -3.0, 500.0], np.float32), "mxfp8_e4m3")
    >>> q
    <MXArray mxfp8_e4m3 (3,), blocks (32,): 4 bytes packed>
    >>> q.dequantize()
    array([ 1.015625e-01, -3.000000e+00,  4.480000e+02], dtype=float32)
    """
    array, source = float_array("x", x, anywhere=True)
    settings = checked_settings(Choices(
        format, array.shape, source.name, axis, block_size, block_shape, blocks, rounding, scale_rule, overflow,
        nonfinite, offset, offset_range, scales is not None,
    ))  # fmt: skip
    is_packed, into = _stores_packed(packed, settings, out), None if out is None else _writable_parts(out)
    if arithmetic != "exact":
        arrays, workers = (array, None if into is None else into[0]), checked_threads(threads)
        _check_alone(arithmetic, settings, arrays, scale_rule, scales, tensor_scale, seed, random_bits)
        # This call only rejects arguments for random bits, because no stack uses random bits.
        _random(array.shape, settings.rounding, None, None, stream, first, sr_bits)
        made = stacks.quantize(array, arithmetic, blocks=settings.blocks, packed=is_packed, threads=workers)
        parts, tensor = (made.codes, made.scales), np.array(made.tensor_scale)
        if out is None or into is None:
            return _mx_array(x, (*parts, None), settings, settings.shape if is_packed else None, tensor)
        for held, part in zip((*into[:2], held_tensor_scale(out, tensor)), (*parts, tensor), strict=True):
            np.copyto(held, part)
        return out
    random = _random(array.shape, settings.rounding, random_bits, seed, stream, first, sr_bits)
    request = Request(settings, array, scales, random, threads, is_packed)
    engine = _completed(request, tensor_scale, () if into is None else into)
    if out is None:
        made = engine.quantize(request)
        return _mx_array(x, made, settings, settings.shape if is_packed else None, request.tensor_scale)
    if request.tensor_scale is None:
        engine.quantize(request, into)
        return out
    held = held_tensor_scale(out, request.tensor_scale)
    engine.quantize(request, into)
    np.copyto(held, request.tensor_scale)
    return out


def fake_quantize(
    x: Any,
    format: str | MXFormat,
    *,
    axis: int | None = None,
    rounding: str | Rounding = "rne",
    scale_rule: str | ScaleRule | FloatScaleRule | None = None,
    overflow: str | Overflow = "saturate",
    nonfinite: str | Nonfinite = "block",
    block_size: int | None = None,
    block_shape: Sequence[int] | None = None,
    blocks: Sequence[int] | None = None,
    scales: Any = None,
    tensor_scale: Any = None,
    arithmetic: str = "exact",
    offset: str | None = None,
    offset_range: str | OffsetRange = "exact",
    random_bits: Any = None,
    seed: int | None = None,
    stream: int = 0,
    first: int = 0,
    sr_bits: int = 30,
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """Quantize and dequantize: return the values of the MX array that `quantize` makes from x.

    The keywords are those of `quantize`, except that `out` is a plain array to write to. The values
    are rounded to the dtype of x, in native byte order, to nearest even. A magnitude beyond the
    range of the dtype becomes infinite.

    >>> import numpy as np, mxnum as mx
    >>> mx.fake_quantize(np.array([0.3, 1.2, 5.0], np.float32), "mxfp4_e2m1")
    array([0.5, 1. , 4. ], dtype=float32)
    """
    array, source = float_array("x", x, anywhere=True)
    settings = checked_settings(Choices(
        format, array.shape, source.name, axis, block_size, block_shape, blocks, rounding, scale_rule, overflow,
        nonfinite, offset, offset_range, scales is not None,
    ))  # fmt: skip
    into = None if out is None else checked_out(host_view("out", out), array.shape, array.dtype)
    if arithmetic != "exact":
        _check_alone(arithmetic, settings, (array, into), scale_rule, scales, tensor_scale, seed, random_bits)
        # This call only rejects arguments for random bits, because no stack uses random bits.
        _random(array.shape, settings.rounding, None, None, stream, first, sr_bits)
        workers = checked_threads(threads)
        made = stacks.fake_quantize(array, arithmetic, blocks=settings.blocks, threads=workers, out=into)
        return answer(made, x, out)
    random = _random(array.shape, settings.rounding, random_bits, seed, stream, first, sr_bits)
    request = Request(settings, array, scales, random, threads)
    values: Array = _completed(request, tensor_scale, (into,)).fake_quantize(request, into)
    return values if type(x) is np.ndarray else answer(values, x, out)


def fake_quantizer(
    x: Any,
    format: str | MXFormat,
    *,
    out: Array,
    axis: int | None = None,
    rounding: str | Rounding = "rne",
    scale_rule: str | ScaleRule | FloatScaleRule | None = None,
    overflow: str | Overflow = "saturate",
    nonfinite: str | Nonfinite = "block",
    block_size: int | None = None,
    block_shape: Sequence[int] | None = None,
    blocks: Sequence[int] | None = None,
    threads: int | None = None,
) -> Callable[[], Array]:
    """Return a function that quantizes the same array again at each call, like `fake_quantize`.

    The arguments are checked once for all calls of the function. The function takes no arguments.
    Each call quantizes the current numbers of x, writes their values to `out`, and returns `out`.
    Only one thread may call the function at a time. The keywords have the same meaning as in
    `fake_quantize`. There are no keywords for stochastic rounding, offsets or given scales.

    >>> import numpy as np, mxnum as mx
    >>> x, out = np.zeros(3, np.float32), np.empty(3, np.float32)
    >>> quantize_again = mx.fake_quantizer(x, "mxfp4_e2m1", out=out)
    >>> x[:] = 0.3, 1.2, 5.0
    >>> quantize_again()
    array([0.5, 1. , 4. ], dtype=float32)
    """
    mode = errors.choose_member("rounding", rounding, _DETERMINISTIC)
    if not isinstance(x, np.ndarray) or formats.get(format).tensor_scale:
        # Nothing can be prepared before the calls, because the memory of a tensor, the stream of a
        # GPU and the tensor scale of x may differ at each call.
        errors.require_type(
            isinstance(x, np.ndarray) or is_tensor(x) or on_device(x), "x", "an array", type(x).__name__
        )
        return partial(
            fake_quantize, x, format, axis=axis, rounding=mode, scale_rule=scale_rule, overflow=overflow,
            nonfinite=nonfinite, block_size=block_size, block_shape=block_shape, blocks=blocks, threads=threads,
            out=out,
        )  # fmt: skip
    errors.require(x.dtype.isnative, "x", "in native byte order", x.dtype.str)
    array, source = float_array("x", x)
    settings = checked_settings(Choices(
        format, array.shape, source.name, axis, block_size, block_shape, blocks, mode, scale_rule, overflow, nonfinite,
    ))  # fmt: skip
    request = Request(settings, array, threads=checked_threads(threads))
    errors.require_type(out is not None, "out", "an array", out)
    out = checked_out(out, array.shape, array.dtype)
    made: Callable[[], Array] = dispatch.engine(x=array, out=out).fake_quantizer(request, out)
    return made


def dequantize(q: MXArray, dtype: Any = "float32", *, threads: int | None = None, out: Array | None = None) -> Array:
    """Return the values of an `MXArray`, like the method `MXArray.dequantize`."""
    errors.require_type(isinstance(q, MXArray), "q", "an MXArray", type(q).__name__)
    return q.dequantize(dtype, threads=threads, out=out)


def shared_scale(
    x: Any,
    format: str | MXFormat,
    *,
    axis: int | None = None,
    scale_rule: str | ScaleRule | FloatScaleRule | None = None,
    nonfinite: str | Nonfinite = "block",
    block_size: int | None = None,
    block_shape: Sequence[int] | None = None,
    blocks: Sequence[int] | None = None,
    tensor_scale: Any = None,
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """Return the scales that `quantize` finds for blocks without offsets: 8-bit codes, or floats.

    With ``nonfinite="element"``, a NaN does not affect the scales. `quantize` raises ValueError for
    such a NaN if the element format has no NaN.

    >>> import numpy as np, mxnum as mx
    >>> mx.shared_scale(np.array([[1.0, 500.0]]), "mxfp8_e4m3", scale_rule="rceil")
    array([[128]], dtype=uint8)
    """
    array, source = float_array("x", x, anywhere=True)
    settings = checked_settings(Choices(
        format, array.shape, source.name, axis, block_size, block_shape, blocks, scale_rule=scale_rule,
        nonfinite=nonfinite,
    ))  # fmt: skip
    kind = settings.scales_shape, scale_dtype(settings.format.scale)
    into = None if out is None else checked_out(host_view("out", out), *kind)
    engine = dispatch.engine(x=array, out=into)
    request = Request(settings, array, threads=checked_threads(threads))
    request.tensor_scale, request.maxima = _tensor_scale(engine, request, tensor_scale)
    return answer(engine.shared_scale(request, into), x, out)


def encode(
    x: Any,
    element: str | ElementFormat,
    *,
    rounding: str | Rounding = "rne",
    overflow: str | Overflow = "saturate",
    nonfinite: str | Nonfinite = "element",
    random_bits: Any = None,
    seed: int | None = None,
    stream: int = 0,
    first: int = 0,
    sr_bits: int = 30,
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """Return the element codes of x at scale 1, in the smallest unsigned type that holds them.

    `element` may also be a float type: ``encode(x, "bfloat16", rounding="sr", seed=1)`` rounds x
    stochastically to bfloat16. `encode` differs from a cast in two ways. An infinity saturates
    unless ``overflow="ieee"`` is given, and a NaN loses its sign.

    >>> import numpy as np, mxnum as mx
    >>> mx.encode(np.array([448.0, 464.0, np.inf]), "e4m3", overflow="ieee")
    array([126, 126, 127], dtype=uint8)
    """
    target = formats.element(element)
    array, source = float_array("x", x, anywhere=True)
    mode = errors.choose_member("rounding", rounding, Rounding)
    random = _random(array.shape, mode, random_bits, seed, stream, first, sr_bits)
    into = checked_out(host_view("out", out), array.shape, code_dtype(target.bits))
    if random is not None and random.words is not None:
        random = replace(random, words=copied_if_overlapping(random.words, into))
    engine = dispatch.engine(x=array, random_bits=None if random is None else random.words, out=into)
    codes = engine.encode(
        array,
        source,
        target,
        rounding=mode,
        overflow=errors.choose_member("overflow", overflow, Overflow),
        nonfinite=errors.choose_member("nonfinite", nonfinite, (Nonfinite.ELEMENT, Nonfinite.RAISE)),
        random=random,
        **host_options(engine, out=into, threads=checked_threads(threads)),
    )
    return answer(codes, x, out)


def decode(
    codes: Any,
    element: str | ElementFormat,
    *,
    dtype: Any = "float32",
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """Return the values of element codes at scale 1.

    >>> import numpy as np, mxnum as mx
    >>> mx.decode(np.array([0x01, 0x7E, 0xFF], np.uint8), "e4m3")
    array([1.953125e-03, 4.480000e+02,          nan], dtype=float32)
    """
    source, target = formats.element(element), result_format(dtype)
    array = checked_codes("codes", codes, source.bits)
    into = checked_out(host_view("out", out), array.shape, numpy_dtype(target))
    engine = dispatch.engine(codes=array, out=into)
    options = host_options(engine, threads=checked_threads(threads))
    return answer(engine.decode(array, source, target, into, **options), codes, out)


def _mx_array(
    x: Any, made: Any, settings: Settings, packed_shape: tuple[int, ...] | None, tensor_scale: Array | None
) -> MXArray:
    """Return an MX array made of the engine's results, converted to the library of x."""
    codes, scales, offsets = made
    if type(x) is not np.ndarray:
        codes, scales, offsets, tensor_scale = (in_kind(part, x) for part in (*made, owned(tensor_scale)))
    return MXArray(codes, scales, settings.format, settings.blocks, offsets, packed_shape, tensor_scale)


def _completed(request: Request, tensor_scale: Any, into: tuple[Any, ...]) -> Any:
    """Check a request's scales and threads, set its tensor scale, and return the engine for it.

    `into` holds the arrays that the engine writes to.
    """
    settings, random, words = request.settings, request.random, None
    if request.threads is not None:
        request.threads = checked_threads(request.threads)
    if request.scales is not None:
        request.scales = checked_scales(request.scales, settings.scales_shape, settings.format.scale)
    if random is not None and random.words is not None:
        words = copied_if_overlapping(random.words, *into)
        request.random = random if words is random.words else replace(random, words=words)
    engine = dispatch.engine_of(request.x, request.scales, words, into[0] if into else None)
    request.tensor_scale, request.maxima = _tensor_scale(engine, request, tensor_scale)
    return engine


def _tensor_scale(engine: Any, request: Request, asked: Any) -> tuple[Any, Any]:
    """Return the tensor scale as an array, and the largest magnitude of each block.

    The tensor scale is None in a format without a tensor scale. The largest magnitudes are None
    unless the engine computed and returned them.
    """
    array, settings = request.x, request.settings
    if asked is None and settings.by_powers_of_two:  # fast path: E8M0 needs no tensor scale
        return None, None
    fmt, shape = settings.format, settings.shape
    if fmt.tensor_scale is None or not (asked is None or isinstance(asked, str)):
        given = checked_tensor_scale(asked, shape, settings.blocks, fmt, positive=True, beside=array)
        dispatch.engine(x=array, tensor_scale=given)
        return None if given is None else engine.copied(given), None  # a copy, since an MXArray owns its tensor scale
    if asked is not None:
        errors.choose("tensor_scale", asked, ("row",))
        errors.require(bool(shape), "tensor_scale", "left out for an array without axes", asked)
        is_of_rows = all(block == 1 for block in settings.blocks[:-1])
        errors.require(is_of_rows, "tensor_scale", "left out if a block spans several rows", asked)
    found: tuple[Any, Any] = engine.tensor_scale(request, asked is not None)
    return found


def _stores_packed(packed: Any, settings: Settings, out: Any) -> bool:
    """Return True if the result must have packed codes, because of `packed` or of a packed `out`.

    Raise an error unless `out` fits the settings.
    """
    if packed is not False:
        errors.require_type(packed is True, "packed", "True or False", packed)
        packed = settings.element.bits < 8
    if out is None:
        return bool(packed)
    errors.require_type(isinstance(out, MXArray), "out", "an MXArray", type(out).__name__)
    fmt, shape, blocks = settings.format, settings.shape, settings.blocks
    has_offsets, wanted = out.offsets is not None, settings.offset_range is not None
    is_packed: bool = out.is_packed
    if (
        (out.format, out.shape, out.blocks) != (fmt, shape, blocks)
        or has_offsets != wanted
        or (packed and not is_packed)
    ):  # fast path: an `out` that fits needs only this one test
        errors.require(out.format == fmt, "out", f"of format {fmt.name}", out.format.name)
        errors.require(out.shape == shape, "out", f"of shape {shape}", out.shape)
        errors.require(out.blocks == blocks, "out", f"in blocks {blocks}", out.blocks)
        errors.require(has_offsets == wanted, "out", "with offsets" if wanted else "without offsets", out)
        errors.require(is_packed or not packed, "out", "packed", out)
    return is_packed


def _writable_parts(out: MXArray) -> tuple[Any, Any, Any]:
    parts = held_parts(out)
    for part in parts:
        if isinstance(part, np.ndarray):
            errors.require(part.flags.writeable, "out", "writable", "a read-only array")
    return parts


def _check_alone(arithmetic: str, settings: Settings, arrays: tuple[Any, Any], *others: Any) -> None:
    """Raise an error unless the format is nvfp4, all modes are defaults, and no array is on a GPU.

    Each of `others` must be None, because a stack computes its own scales and uses no random bits.
    """
    if not isinstance(arithmetic, stacks.Stack):
        errors.choose("arithmetic", arithmetic, ("exact", *stacks.STACKS))
    errors.require(settings.format == formats.get("nvfp4"), "arithmetic", f"'exact' for {settings.format}", arithmetic)
    usual = settings.rounding, settings.overflow, settings.nonfinite
    is_alone = usual == _DEFAULTS and all(other is None for other in others)
    accepted = (
        "'exact' if rounding, scale_rule, overflow, nonfinite, scales, tensor_scale, seed or random_bits is given"
    )
    errors.require(is_alone, "arithmetic", accepted, arithmetic)
    for name, array in zip(("x", "out"), arrays, strict=True):
        if array is not None and not isinstance(array, np.ndarray):
            raise errors.on_gpu(name, "copy it first, or leave out `arithmetic`")


def _random(
    shape: tuple[int, ...], rounding: Rounding, random_bits: Any, seed: Any, stream: int, first: int, sr_bits: int
) -> RandomBits | None:
    """Return the random bits for stochastic rounding, or None for the other modes."""
    # Fast path: a plain int within its range needs no conversion.
    if not (type(sr_bits) is type(stream) is int and 1 <= sr_bits <= 30 and 0 <= stream <= _LARGEST_WORD):
        sr_bits = errors.integer("sr_bits", sr_bits, 1, 30)
        stream = errors.integer("stream", stream, 0, _LARGEST_WORD)
    if not (type(first) is int and 0 <= first <= _LARGEST_INDEX):
        first = errors.integer("first", first, 0, _LARGEST_INDEX)
    of_seed = "seed" if seed is not None else "stream" if stream else "first" if first else None
    if not rounding.is_stochastic:
        name = "random_bits" if random_bits is not None else of_seed or ("sr_bits" if sr_bits != 30 else None)
        if name is not None:
            raise ValueError(f"Argument {name!r} must be left out unless rounding='sr'.")
        return None
    if random_bits is not None:
        if of_seed is not None:
            raise errors.exclusive(of_seed, "random_bits")
        words = as_array("random_bits", random_bits)
        others = "; mxnum.interop.torch accepts integers of any type" if is_tensor(random_bits) else ""
        errors.require_dtype("random_bits", words.dtype, np.dtype(np.uint32), others)
        errors.require(words.shape == shape, "random_bits", f"of shape {shape}", words.shape)
        return RandomBits(sr_bits, words=words)
    if seed is None:
        raise ValueError("Argument 'random_bits' or 'seed' must be given with rounding='sr'.")
    if not (type(seed) is int and 0 <= seed <= _LARGEST_WORD):
        seed = errors.integer("seed", seed, 0, _LARGEST_WORD)
    return RandomBits(sr_bits, seed=seed, stream=stream, first=first)
