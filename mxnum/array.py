"""`MXArray`: element codes, block scales, and how they belong together."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np

from mxnum import errors, formats
from mxnum.device import DeviceArray, described, on_device
from mxnum.dtypes import Array, as_array, code_dtype, numpy_dtype, result_format
from mxnum.engine.dispatch import engine as dispatch_engine
from mxnum.engine.dispatch import host_engine
from mxnum.files import written_whole
from mxnum.formats import MXFormat
from mxnum.layout import Blocks, normalize_axis, resolve_blocks, scales_shape


class MXArray:
    """A quantized array: one uint8 code per element, one E8M0 code per block, and perhaps a float16 offset per block.

    All live in host memory, or on a GPU as arrays of the library that the input was of; `to_host` copies.
    Make one with `mxnum.quantize`, or from existing codes with `MXArray.from_parts`. Arithmetic on it is refused on
    purpose; `dequantize` (or `numpy.asarray`) gives the values.
    """

    __slots__ = ("blocks", "codes", "format", "offsets", "scales")

    #: Operators with numpy arrays raise TypeError instead of computing on codes.
    __array_ufunc__ = None

    def __init__(
        self, codes: Array, scales: Array, format: MXFormat, blocks: Blocks, offsets: Array | None = None
    ) -> None:
        #: Element codes, value in the low bits, one byte each.
        self.codes = codes
        #: E8M0 codes, of shape ceil(shape / blocks).
        self.scales = scales
        self.format = format
        #: How many elements share a scale along each axis.
        self.blocks = blocks
        #: float16 offsets of asymmetric scaling, shaped as the scales, or None.
        self.offsets = offsets

    @classmethod
    def from_parts(
        cls,
        codes: Any,
        scales: Any,
        format: str | MXFormat,
        *,
        axis: int | None = None,
        block_size: int | None = None,
        block_shape: Sequence[int] | None = None,
        blocks: Sequence[int] | None = None,
        offsets: Any = None,
    ) -> Self:
        """An MXArray around existing codes and scales, checked and not copied."""
        fmt = formats.get(format)
        codes = checked_codes("codes", codes, fmt.element.bits)
        layout = resolve_blocks(
            codes.shape, fmt.block, axis=axis, block_size=block_size, block_shape=block_shape, blocks=blocks
        )
        return cls._around(codes, scales, fmt, layout, offsets)

    @classmethod
    def _around(cls, codes: Any, scales: Any, fmt: MXFormat, layout: Blocks, offsets: Any) -> Self:
        """Codes that need no check with scales and offsets that do."""
        scales = checked_scales(scales, scales_shape(codes.shape, layout))
        if offsets is not None:
            offsets = as_array("offsets", offsets)
            errors.require_dtype("offsets", offsets.dtype, np.dtype(np.float16))
            errors.require(offsets.shape == scales.shape, "offsets", f"of shape {scales.shape}", offsets.shape)
        dispatch_engine(codes=codes, scales=scales, offsets=offsets)
        return cls(owned(codes), owned(scales), fmt, layout, owned(offsets))

    @classmethod
    def from_packed(
        cls,
        packed: Any,
        scales: Any,
        format: str | MXFormat,
        *,
        length: int,
        axis: int | None = None,
        block_size: int | None = None,
        block_shape: Sequence[int] | None = None,
        blocks: Sequence[int] | None = None,
        offsets: Any = None,
    ) -> Self:
        """An MXArray from what `pack` returns; `length` is the number of elements in each row of the last axis."""
        from mxnum.engine import packing

        fmt = formats.get(format)
        bits = fmt.element.bits
        packed = as_array("packed", packed)
        errors.require_dtype("packed", packed.dtype, np.dtype(np.uint8))
        errors.require(packed.ndim >= 1, "packed", "an array of at least one axis", packed.shape)
        length = errors.integer("length", length, 0, 1 << 62)
        row = packing.packed_length(length, bits)
        errors.require(
            packed.shape[-1] == row, "packed", f"{row} bytes per row for {length} codes of {bits} bits", packed.shape
        )
        codes = as_array("codes", dispatch_engine(packed=packed).unpack(packed, bits, length))
        layout = resolve_blocks(
            codes.shape, fmt.block, axis=axis, block_size=block_size, block_shape=block_shape, blocks=blocks
        )
        return cls._around(codes, scales, fmt, layout, offsets)

    # Shape and size

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.codes.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes held in memory: one per element, and the scales and offsets."""
        return self.size + self._side_bytes

    @property
    def packed_nbytes(self) -> int:
        """Bytes of the packed codes, the scales and the offsets."""
        if self.ndim == 0:
            return 1 + self._side_bytes
        row = (self.shape[-1] * self.format.element.bits + 7) // 8
        return (self.size // self.shape[-1] if self.size else 0) * row + self._side_bytes

    @property
    def _side_bytes(self) -> int:
        return math.prod(self.scales.shape) * (1 if self.offsets is None else 3)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def on_device(self) -> bool:
        """Whether the codes live on a GPU."""
        return on_device(self.codes)

    def to_host(self) -> Self:
        """The same in host memory: itself if it is there already, a copy otherwise."""
        if not self.on_device:
            return self
        from mxnum.engine.cuda import arrays

        codes, scales, offsets = (
            None if part is None else arrays.to_host(described("self", part))
            for part in (self.codes, self.scales, self.offsets)
        )
        assert codes is not None
        assert scales is not None
        return type(self)(codes, scales, self.format, self.blocks, offsets)

    @property
    def parts(self) -> tuple[Any, Any, Any]:
        """Codes, scales and offsets as the engine takes them."""
        codes, scales = as_array("codes", self.codes), as_array("scales", self.scales)
        return codes, scales, None if self.offsets is None else as_array("offsets", self.offsets)

    # Values

    def dequantize(self, dtype: Any = "float32", *, threads: int | None = None, out: Array | None = None) -> Array:
        """The values in float32, float64, bfloat16 or float16, rounded once to nearest even; float64 is exact.

        A block whose scale is 0xFF reads NaN. `out` must have the shape and the dtype asked for; `threads` bounds how
        many threads work on a large array.
        """
        target = result_format(dtype)
        codes, scales, offsets = self.parts
        out = checked_out(out, self.shape, numpy_dtype(target))
        engine = dispatch_engine(codes=codes, scales=scales, offsets=offsets, out=out)
        options = host_options(engine, threads=checked_threads(threads))
        element = self.format.element
        values: Array = engine.dequantize(codes, scales, offsets, element, self.blocks, target, out, **options)
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("Argument 'copy' must be True or None for an MXArray, not False: its values are computed.")
        self._require_host("array", "use dequantize() there, or to_host() first")
        return self.dequantize("float32" if dtype is None else dtype)

    def pack(self, *, out: Array | None = None) -> Array:
        """The codes as bytes: each row of the last axis is a little-endian bit stream that ends on a byte."""
        from mxnum.engine import packing

        codes, bits = as_array("codes", self.codes), self.format.element.bits
        codes = codes[np.newaxis] if self.ndim == 0 else codes
        shape = (*codes.shape[:-1], packing.packed_length(codes.shape[-1], bits))
        out = checked_out(out, shape, np.dtype(np.uint8))
        engine = dispatch_engine(codes=codes, out=out)
        packed: Array = engine.pack(codes, bits, **host_options(engine, out=out))
        return packed

    @property
    def elements(self) -> Array:
        """The codes seen as numbers of an ml_dtypes (or numpy) type, without a copy; the scales are not applied.

        Integer elements narrower than their type are not offered: their sign bit is not the type's.
        """
        element = self.format.element
        self._require_host("array", "call to_host() first")
        errors.require(
            not element.integer or element.bits == 8, "format", "one whose codes ml_dtypes stores alike", element.name
        )
        return self.codes.view(numpy_dtype(element))

    def equals(self, other: object) -> bool:
        """Whether format, layout and every code, scale and offset bit are the same."""
        if not isinstance(other, MXArray):
            return False
        if self.format != other.format or self.blocks != other.blocks:
            return False
        pairs = list(zip(self.parts, other.parts, strict=True))
        if any((mine is None) != (its is None) for mine, its in pairs):
            return False
        engine = dispatch_engine(self=pairs[0][0], other=pairs[0][1])
        return all(engine.equal(mine, its) for mine, its in pairs if mine is not None)

    def _require_host(self, argument: str, remedy: str) -> None:
        if self.on_device:
            raise errors.on_gpu(argument, remedy)

    # Views

    @property
    def T(self) -> Self:
        """The transpose, without a copy."""
        return self.transpose()

    def transpose(self, *axes: int) -> Self:
        """Axes permuted (default: reversed), without a copy; blocks go with their axes."""
        order = tuple(normalize_axis(axis, self.ndim) for axis in axes) or tuple(reversed(range(self.ndim)))
        errors.require(sorted(order) == list(range(self.ndim)), "axes", f"a permutation of {self.ndim} axes", axes)
        return type(self)(
            _viewed(self.codes, lambda x: x.transpose(order)),
            _viewed(self.scales, lambda x: x.transpose(order)),
            self.format,
            tuple(self.blocks[axis] for axis in order),
            _viewed(self.offsets, lambda x: x.transpose(order)),
        )

    def __getitem__(self, key: Any) -> Self:
        """A view: integers and slices along axes that are not blocked, whole blocks along those that are."""
        keys = key if isinstance(key, tuple) else (key,)
        if any(item is Ellipsis for item in keys):
            place = next(i for i, item in enumerate(keys) if item is Ellipsis)
            keys = (*keys[:place], *[slice(None)] * (self.ndim - len(keys) + 1), *keys[place + 1 :])
        errors.require(len(keys) <= self.ndim, "key", f"at most {self.ndim} indices", key)
        keys = (*keys, *[slice(None)] * (self.ndim - len(keys)))
        of_scales = tuple(
            item if block == 1 else _block_slice(item, length, block, axis)
            for axis, (item, length, block) in enumerate(zip(keys, self.shape, self.blocks, strict=True))
        )
        for item in keys:
            errors.require_type(
                isinstance(item, (int, np.integer, slice)) and not isinstance(item, bool), "key",
                "made of integers, slices and '...'", item,
            )  # fmt: skip
        # Ending with an ellipsis keeps an array, and a view, where all axes are dropped.
        return type(self)(
            _viewed(self.codes, lambda x: x[(*keys, ...)]),
            _viewed(self.scales, lambda x: x[(*of_scales, ...)]),
            self.format,
            tuple(b for b, item in zip(self.blocks, keys, strict=True) if isinstance(item, slice)),
            _viewed(self.offsets, lambda x: x[(*of_scales, ...)]),
        )

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an ``.npz`` file with packed codes, scales, offsets and a description; all of it or nothing."""
        self._require_host("array", "call to_host() first")
        e = self.format.element
        description = {
            "mxnum": 1,
            "name": self.format.name,
            "block": self.format.block,
            "scale": self.format.scale.name,
            "element": {
                "name": e.name, "exponent_bits": e.exponent_bits, "mantissa_bits": e.mantissa_bits, "bias": e.bias,
                "specials": e.specials, "integer": e.integer,
            },
            "shape": self.shape,
            "blocks": self.blocks,
        }  # fmt: skip
        parts: dict[str, Any] = {
            "description": np.array(json.dumps(description)),
            "packed": self.pack(),
            "scales": self.scales,
        }
        if self.offsets is not None:
            parts["offsets"] = self.offsets
        with written_whole(path) as partial, partial.open("wb") as file:
            np.savez(file, **parts)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        try:
            with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
                parts = {name: file[name] for name in file.files}
            description = json.loads(str(parts["description"]))
            element = formats.ElementFormat(**description["element"])
            fmt = MXFormat(element, description["scale"], description["block"], description["name"])
            shape, blocks = tuple(description["shape"]), tuple(description["blocks"])
            packed, scales = parts["packed"], parts["scales"]
        except (KeyError, ValueError, TypeError, EOFError, BadZipFile) as problem:
            raise ValueError(
                f"Argument 'path' must be a file written by MXArray.save, not {str(path)!r} ({problem})."
            ) from None
        # A scalar is packed as a row of one, and read back as such.
        row_shape, row_blocks = shape or (1,), blocks or (1,)
        side = scales_shape(row_shape, row_blocks)
        offsets = parts["offsets"].reshape(side) if "offsets" in parts else None
        array = cls.from_packed(
            packed, scales.reshape(side), fmt, length=row_shape[-1], blocks=row_blocks, offsets=offsets
        )
        return array if shape else array[0]

    def __repr__(self) -> str:
        offsets = "" if self.offsets is None else ", float16 offsets"
        return (
            f"<MXArray {self.format.name} {self.shape}, blocks {self.blocks}{offsets}: "
            f"{self.packed_nbytes} bytes packed>"
        )


def host_options(engine: Any, **options: Any) -> dict[str, Any]:
    """Options that only the engine of the host has; they must be None elsewhere."""
    if engine is host_engine():
        return options
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"Argument {name!r} must be left out for arrays on a GPU.")
    return {}


def checked_threads(threads: int | None) -> int | None:
    """A number of threads, or None."""
    return None if threads is None else errors.positive_integer("threads", threads)


def owned(array: Any) -> Any:
    """The caller's object behind the description of an array on a GPU; anything else as it is."""
    return array.owner if isinstance(array, DeviceArray) else array


def _viewed(array: Any, view: Callable[[Any], Any]) -> Any:
    """A view of a part of an MX array, of the same kind."""
    if array is None or not on_device(array):
        return None if array is None else view(array)
    from mxnum.engine.cuda import arrays

    return arrays.owner_of(view(described("self", array)))


def checked_codes(argument: str, value: Any, bits: int) -> Any:
    """`value` as a uint8 (or wider unsigned) array of codes whose unused high bits are zero."""
    codes = as_array(argument, value)
    dtype = code_dtype(bits)
    errors.require_dtype(argument, codes.dtype, dtype)
    if codes.size and bits < 8 * dtype.itemsize:
        largest = dispatch_engine(codes=codes).largest(codes)
        errors.require(largest < 1 << bits, argument, f"below {1 << bits}, its high bits zero", largest)
    return codes


def checked_scales(value: Any, shape: tuple[int, ...]) -> Any:
    """`value` as a uint8 array of scale codes, of the shape that codes and blocks call for."""
    scales = as_array("scales", value)
    errors.require_dtype("scales", scales.dtype, np.dtype(np.uint8), " of E8M0 codes")
    errors.require(scales.shape == shape, "scales", f"of shape {shape}", scales.shape)
    return scales


def checked_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """`out`, a writable array of exactly that shape and dtype, or None."""
    if out is None:
        return None
    if on_device(out):
        out = described("out", out)
        writable = out.writable
    else:
        errors.require_type(isinstance(out, np.ndarray), "out", "a numpy array", type(out).__name__)
        writable = out.flags.writeable
    if out.shape != shape or out.dtype != dtype:  # (writing a dtype out takes longer than all the rest)
        errors.require(out.shape == shape, "out", f"of shape {shape}", out.shape)
        errors.require(out.dtype == dtype, "out", f"of dtype {dtype}", out.dtype)
    errors.require(writable, "out", "writable", "a read-only array")
    return out


def _block_slice(item: Any, length: int, block: int, axis: int) -> slice:
    """The slice of scales for a slice of elements along a blocked axis."""
    if isinstance(item, slice):
        start, stop, step = item.indices(length)
        if step == 1 and start % block == 0 and (stop >= length or stop % block == 0) and start <= stop:
            return slice(start // block, -(-stop // block))
    raise ValueError(
        f"Argument 'key' must take whole blocks of {block} along axis {axis}, which shares scales, not {item!r}."
    )
