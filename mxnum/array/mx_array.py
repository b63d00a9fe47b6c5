"""Define `MXArray`: element codes, block scales, and their layout."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Self

import numpy as np

from mxnum import errors, formats
from mxnum.array.arguments import (
    Layout,
    checked_codes,
    checked_out,
    checked_scales,
    checked_tensor_scale,
    checked_threads,
    copied_if_overlapping,
    host_options,
    layout_of,
    on_host,
    owned,
    packed_layout,
)
from mxnum.array.views import (
    along,
    block_slice,
    is_contiguous,
    leaves_alike,
    locked,
    padded_with_zeros,
    unpacked,
    viewed,
)
from mxnum.engine.dispatch import engine as dispatch_engine
from mxnum.engine.request import DecodingRequest, decoding_settings
from mxnum.formats import MXFormat
from mxnum.layout import Blocks, block_lengths, normalize_axis, packed_length, scales_shape
from mxnum.memory.device import described, on_device
from mxnum.memory.dtypes import Array, as_array, code_dtype, numpy_dtype, result_format, scale_dtype
from mxnum.memory.tensors import answer, host_view, in_kind, is_foreign
from mxnum.output.files import as_path, reading, written_whole

_BYTE = np.dtype(np.uint8)
#: The names of the arrays in a file that `MXArray.save` writes.
_PARTS = "description", "packed", "scales", "offsets", "tensor_scale"


class MXArray:
    """A quantized array: a code for each element, and a scale for each block.

    With asymmetric scaling, an array also has float16 offsets, one for each block. If the format
    has a tensor scale, the array has one too. Each code takes a byte, unless the codes are packed
    (``mxnum.quantize(x, format, packed=True)``). A packed array takes `packed_nbytes` bytes. The
    parts are either all in host memory, or all in GPU memory, as arrays of the input's library.
    `to_host` copies the parts to host memory.

    Make an MXArray with `mxnum.quantize`, or from existing parts with `MXArray.from_parts` or
    `MXArray.from_packed`. Arithmetic on an MXArray raises TypeError on purpose. `dequantize` (or
    `numpy.asarray`) gives the values.
    """

    __slots__ = ("_is_part", "_packed_shape", "_stored", "blocks", "format", "offsets", "scales", "tensor_scale")

    #: Set to None, so that operators between a numpy array and an MXArray raise TypeError.
    __array_ufunc__ = None

    def __init__(
        self,
        stored: Array,
        scales: Array,
        format: MXFormat,
        blocks: Blocks,
        offsets: Array | None = None,
        packed_shape: tuple[int, ...] | None = None,
        tensor_scale: Array | None = None,
    ) -> None:
        """Store the parts unchecked.

        `stored` holds the codes. If they are packed, as by `pack`, `packed_shape` is the shape of
        the codes; otherwise it is None.
        """
        self._stored = stored
        self._packed_shape = packed_shape
        #: True if this MXArray is a view of a larger array, and elements outside the view share its
        #: tensor scale.
        self._is_part = False
        #: The scales, of shape ceil(shape / blocks): uint8 codes (E8M0, E4M3, UE5M3), or floats if
        #: the scales have 16 or 32 bits.
        self.scales = scales
        self.format = format
        #: The length of a block along each axis.
        self.blocks = blocks
        #: The float16 offsets of asymmetric scaling, in the shape of the scales; otherwise None.
        self.offsets = offsets
        #: The tensor scale, a float32 array, or None if the format has no tensor scale. A tensor
        #: scale without axes multiplies all values. A tensor scale with axes has as many axes as
        #: the codes and broadcasts with the codes.
        self.tensor_scale = tensor_scale

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
        tensor_scale: Any = None,
    ) -> Self:
        """Return an MXArray that holds the given codes and scales, checked but not copied."""
        array = checked_codes("codes", codes, formats.get(format).element.bits)
        tile, given = block_lengths("block_shape", block_shape), block_lengths("blocks", blocks)
        layout = layout_of(format, array.shape, axis, block_size, tile, given)
        return cls._around(codes, array, scales, offsets, layout, None, tensor_scale)

    @classmethod
    def _around(
        cls,
        given: Any,
        stored: Any,
        scales: Any,
        offsets: Any,
        layout: Layout,
        packed_shape: tuple[int, ...] | None,
        tensor_scale: Any,
    ) -> Self:
        """Return an MXArray of the given parts, after checking all parts but the codes.

        `given` is the caller's object with the codes, and `stored` has the same codes as an array.
        """
        fmt, blocks, of_scales = layout
        scales = checked_scales(scales, of_scales, fmt.scale)
        shape = stored.shape if packed_shape is None else packed_shape
        tensor = checked_tensor_scale(tensor_scale, shape, blocks, fmt, positive=False, beside=stored)
        if offsets is not None:
            errors.require(
                fmt.scale.power_of_two, "offsets", f"left out for {fmt.name}, whose scales are floats", offsets
            )
            offsets = as_array("offsets", offsets)
            errors.require_dtype("offsets", offsets.dtype, np.dtype(np.float16))
            errors.require(offsets.shape == scales.shape, "offsets", f"of shape {scales.shape}", offsets.shape)
        if not (offsets is None and isinstance(stored, np.ndarray) and isinstance(scales, np.ndarray)):
            dispatch_engine(codes=stored, scales=scales, offsets=offsets, tensor_scale=tensor)
            stored, scales, offsets, tensor = owned(stored), owned(scales), owned(offsets), owned(tensor)
        if is_foreign(given):
            parts = stored, scales, offsets, tensor
            stored, scales, offsets, tensor = (in_kind(part, given) for part in parts)
        return cls(stored, scales, fmt, blocks, offsets, packed_shape, tensor)

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
        tensor_scale: Any = None,
    ) -> Self:
        """Return an MXArray that holds codes packed as by `pack`, checked but not copied.

        `length` is the number of elements in each row of the last axis. Bits that pad a row are
        ignored. If padding bits are not zero, the MXArray holds a copy with zeros there, so that
        equal arrays have equal bytes.
        """
        array = as_array("packed", packed)
        errors.require_dtype("packed", array.dtype, _BYTE)
        tile, given = block_lengths("block_shape", block_shape), block_lengths("blocks", blocks)
        shape, layout = packed_layout(format, array.shape, length, axis, block_size, tile, given)
        bits = layout.format.element.bits
        array = padded_with_zeros(array, shape[-1], bits)
        return cls._around(packed, array, scales, offsets, layout, None if bits == 8 else shape, tensor_scale)

    # Storage of codes

    @property
    def is_packed(self) -> bool:
        """True if the codes are held packed. Codes of eight bits are never packed."""
        return self._packed_shape is not None

    @property
    def codes(self) -> Array:
        """The element codes, one byte each, with the code in the low bits.

        If the codes are held packed, each access unpacks them to a new array, which is read-only in
        host memory. Call `unpacked` to unpack the codes once.
        """
        if self._packed_shape is None:
            return self._stored
        return locked(unpacked(self._stored, self._packed_shape, self.format.element.bits))

    def packed(self) -> Self:
        """Return the same array with its codes held packed.

        The result is `self` if the codes are packed already, or have eight bits.
        """
        if self.is_packed or self.format.element.bits == 8:
            return self
        return self._with(self.pack(), self.shape)

    def unpacked(self) -> Self:
        """Return the same array with a byte for each code, or `self` if no codes are packed."""
        if self._packed_shape is None:
            return self
        codes = unpacked(self._stored, self._packed_shape, self.format.element.bits)
        return self._with(codes, None)

    def _with(self, stored: Any, packed_shape: tuple[int, ...] | None) -> Self:
        """Return the same array with its codes stored in another way: packed or in bytes."""
        return self._seen(stored, self.scales, self.blocks, self.offsets, packed_shape, self.tensor_scale)

    def _seen(
        self,
        stored: Array,
        scales: Array,
        blocks: Blocks,
        offsets: Array | None,
        packed_shape: tuple[int, ...] | None,
        tensor_scale: Array | None,
        is_part: bool = False,
    ) -> Self:
        """Return a view: an MXArray with the given parts, which share the memory of this array.

        `is_part` is True if elements outside the view share the view's tensor scale.
        """
        made = type(self)(stored, scales, self.format, blocks, offsets, packed_shape, tensor_scale)
        made._is_part = self._is_part or is_part
        return made

    # Shape and size

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._stored.shape) if self._packed_shape is None else self._packed_shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes that codes (as stored), scales, tensor scale and offsets take in memory."""
        return math.prod(self._stored.shape) + self._side_bytes

    @property
    def packed_nbytes(self) -> int:
        """The bytes that scales, tensor scale, offsets and packed codes take."""
        if self.ndim == 0:
            return 1 + self._side_bytes
        row = packed_length(self.shape[-1], self.format.element.bits)
        return (self.size // self.shape[-1] if self.size else 0) * row + self._side_bytes

    @property
    def _side_bytes(self) -> int:
        of_block = self.format.scale.bits // 8 + (0 if self.offsets is None else 2)
        of_tensor = 0 if self.tensor_scale is None else 4 * math.prod(self.tensor_scale.shape)
        return math.prod(self.scales.shape) * of_block + of_tensor

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("An MXArray without axes has no length.")
        return self.shape[0]

    def to_host(self) -> Self:
        """Return the same MXArray, held in numpy arrays.

        The result is `self` if it holds numpy arrays, a view if it holds CPU tensors, and a copy if
        it holds arrays on a GPU.
        """
        if not on_device(self._stored):
            if not is_foreign(self._stored):
                return self
            stored, scales, offsets = held_parts(self)
            tensor = None if self.tensor_scale is None else as_array("tensor_scale", self.tensor_scale)
            return self._seen(stored, scales, self.blocks, offsets, self._packed_shape, tensor)
        from mxnum.engine.cuda import arrays

        stored, scales, offsets, tensor = (
            None if part is None else arrays.to_host(described("self", part))
            for part in (self._stored, self.scales, self.offsets, self.tensor_scale)
        )
        assert stored is not None
        assert scales is not None
        return type(self)(stored, scales, self.format, self.blocks, offsets, self._packed_shape, tensor)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        """Raise TypeError, because == could mean equal codes, equal values or the same object."""
        raise TypeError("An MXArray does not support == or !=: use a.equals(b), or compare the values a.dequantize().")

    # Values

    def dequantize(self, dtype: Any = "float32", *, threads: int | None = None, out: Array | None = None) -> Array:
        """Return the values in float32, float64, bfloat16 or float16, rounded once to nearest even.

        Values in float64 are exact if the array has no offsets. With offsets, the sum of value and
        offset is rounded. In a block whose scale is NaN, all values are NaN. `out` must have the
        shape and dtype of the result. `threads` is the maximum number of threads for a large array.
        """
        target = result_format(dtype)
        stored, scales, offsets = held_parts(self)
        shape, has_offsets = self.shape, offsets is not None
        fmt, is_packed = self.format, self._packed_shape is not None
        kind = fmt.element, self.blocks, shape, is_packed, has_offsets, target, fmt.scale
        tensor = None if self.tensor_scale is None else as_array("tensor_scale", self.tensor_scale)
        into = None if out is None else checked_out(host_view("out", out), shape, numpy_dtype(target))
        tensor = tensor if tensor is None or into is None else copied_if_overlapping(tensor, into)
        request = DecodingRequest(decoding_settings(*kind), stored, scales, offsets, checked_threads(threads), tensor)
        engine = dispatch_engine(codes=stored, scales=scales, offsets=offsets, tensor_scale=tensor, out=into)
        return answer(engine.dequantize(request, into), self._stored, out)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("Argument 'copy' must be True or None, not False: an MXArray holds codes, not values.")
        self._require_host("array", "call dequantize(), which works on a GPU, or call to_host() first")
        return self.to_host().dequantize("float32" if dtype is None else dtype)

    def pack(self, *, out: Array | None = None) -> Array:
        """Return the codes as bytes in C order.

        Each row of the last axis is a little-endian bit stream, padded to whole bytes. An array
        without axes is one row of one code. Codes that are held packed are copied only if `out` is
        given, or if their bytes are not in C order.
        """
        if self.is_packed:
            return self._pack_held(out)
        codes, bits = as_array("codes", self.codes), self.format.element.bits
        codes = codes[np.newaxis] if self.ndim == 0 else codes
        shape = (*codes.shape[:-1], packed_length(codes.shape[-1], bits))
        into = checked_out(host_view("out", out), shape, np.dtype(np.uint8))
        codes = copied_if_overlapping(codes, into)
        engine = dispatch_engine(codes=codes, out=into)
        return answer(engine.pack(codes, bits, **host_options(engine, out=into)), self._stored, out)

    def _pack_held(self, out: Array | None) -> Array:
        packed = as_array("packed", self._stored)
        if out is None and is_contiguous(packed):
            return self._stored
        if out is None:
            return answer(dispatch_engine(codes=packed).pack(packed, 8), self._stored, None)
        into = checked_out(host_view("out", out), packed.shape, np.dtype(np.uint8))
        host_options(dispatch_engine(codes=packed, out=into), out=into)
        np.copyto(into, packed)
        return out

    @property
    def elements(self) -> Array:
        """The codes viewed as numbers of an ml_dtypes (or numpy) type, without a copy.

        The values are not multiplied by the scales. Integer elements of fewer than 8 bits raise
        ValueError, because a code's sign bit is not the sign bit of its byte.
        """
        element = self.format.element
        self._require_host("array", "call to_host() first")
        errors.require(
            not element.integer or element.bits == 8,
            "format",
            "a format of float elements or of 8-bit integers",
            element.name,
        )
        return self.to_host().codes.view(numpy_dtype(element))

    def equals(self, other: object) -> bool:
        """Return True if format, blocks and every bit of the arrays are the same.

        The compared arrays are the codes, scales, offsets and tensor scale. Formats are equal only
        if their names are also equal. The comparison ignores packing and the order of axes in
        memory.
        """
        if not isinstance(other, MXArray):
            return False
        if self.format != other.format or self.blocks != other.blocks:
            return False
        tensors = (None if q.tensor_scale is None else as_array("tensor_scale", q.tensor_scale) for q in (self, other))
        pairs = [*zip(parts_of(self), parts_of(other), strict=True), tuple(tensors)]
        if any((mine is None) != (its is None) for mine, its in pairs):
            return False
        engine = dispatch_engine(self=pairs[0][0], other=pairs[0][1])
        return all(engine.equal(mine, its) for mine, its in pairs if mine is not None)

    def _require_host(self, argument: str, remedy: str) -> None:
        if on_device(self._stored):
            raise errors.on_gpu(argument, remedy)

    # Views

    @property
    def T(self) -> Self:
        """The array with its axes reversed, as `transpose` returns it."""
        return self.transpose()

    def transpose(self, *axes: Any) -> Self:
        """Return a view with permuted axes. By default, the order of the axes is reversed.

        The axes may also be given as one tuple. Packed codes are unpacked to new memory, unless the
        last axis stays last.
        """
        if len(axes) == 1 and isinstance(axes[0], tuple | list):
            axes = tuple(axes[0])
        order = tuple(normalize_axis(axis, self.ndim) for axis in axes) or tuple(reversed(range(self.ndim)))
        errors.require(sorted(order) == list(range(self.ndim)), "axes", f"a permutation of {self.ndim} axes", axes)
        keeps_rows = self._packed_shape is not None and order[-1:] == (self.ndim - 1,)
        return self._seen(
            viewed(self._stored if keeps_rows else self.codes, lambda x: x.transpose(order)),
            viewed(self.scales, lambda x: x.transpose(order)),
            tuple(self.blocks[axis] for axis in order),
            viewed(self.offsets, lambda x: x.transpose(order)),
            tuple(self.shape[axis] for axis in order) if keeps_rows else None,
            viewed(self.tensor_scale, lambda x: x.transpose(order) if x.ndim else x),
        )

    def __getitem__(self, key: Any) -> Self:
        """Return the view that integers and slices select. A slice must select whole blocks.

        Packed codes stay packed if each row of the view begins and ends at a byte boundary.
        Otherwise, they are unpacked to new memory.
        """
        keys = key if isinstance(key, tuple) else (key,)
        ellipses = sum(item is Ellipsis for item in keys)
        errors.require(ellipses <= 1, "key", "an index with one '...' at most", key)
        if ellipses:
            at = next(i for i, item in enumerate(keys) if item is Ellipsis)
            keys = (*keys[:at], *[slice(None)] * (self.ndim - len(keys) + 1), *keys[at + 1 :])
        errors.require(len(keys) <= self.ndim, "key", f"at most {self.ndim} indices", key)
        keys = (*keys, *[slice(None)] * (self.ndim - len(keys)))
        of_scales = tuple(
            item if block == 1 else block_slice(item, length, block, axis)
            for axis, (item, length, block) in enumerate(zip(keys, self.shape, self.blocks, strict=True))
        )
        for item in keys:
            errors.require_type(
                isinstance(item, (int, np.integer, slice)) and not isinstance(item, bool), "key",
                "made of integers, slices and '...'", item,
            )  # fmt: skip
        stored, packed_shape = self._stored_at(keys)
        # The "..." at the end makes numpy return a view, not a scalar, even if the key drops all
        # axes.
        return self._seen(
            stored,
            viewed(self.scales, lambda x: x[(*of_scales, ...)]),
            tuple(b for b, item in zip(self.blocks, keys, strict=True) if isinstance(item, slice)),
            viewed(self.offsets, lambda x: x[(*of_scales, ...)]),
            packed_shape,
            viewed(self.tensor_scale, lambda x: x[(*along(keys, x.shape), ...)] if x.ndim else x),
            self.tensor_scale is not None and leaves_alike(keys, self.shape, self.tensor_scale.shape),
        )

    def _stored_at(self, keys: tuple[Any, ...]) -> tuple[Array, tuple[int, ...] | None]:
        """Return the stored codes that `keys` select, and their unpacked shape if they are packed.

        `keys` has one key for each axis.
        """
        if not self._packed_shape:
            return viewed(self.codes, lambda x: x[(*keys, ...)]), None
        *leading, last = keys
        length, bits = self.shape[-1], self.format.element.bits
        start, stop, step = last.indices(length) if isinstance(last, slice) else (0, 0, 0)
        ends_at_byte = stop == length or stop * bits % 8 == 0
        if step == 1 and start <= stop and start * bits % 8 == 0 and ends_at_byte:
            bytes_ = slice(start * bits // 8, packed_length(stop, bits))
            rows = viewed(self._stored, lambda x: x[(*leading, bytes_)])
            return rows, (*rows.shape[:-1], stop - start)
        rows = viewed(self._stored, lambda x: x[(*leading, slice(None))])
        codes = locked(unpacked(rows, (*rows.shape[:-1], length), bits))
        return viewed(codes, lambda x: x[..., last]), None

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all parts of the array to an ``.npz`` file, with packed codes and a description.

        If writing fails, no new file is left, and an existing file is unchanged.
        """
        self._require_host("array", "call to_host() first")
        accepted = "the path of an .npz file; mxnum.interop.safetensors.save writes .safetensors files"
        errors.require(not str(path).endswith(".safetensors"), "path", accepted, str(path))
        q = self.to_host()
        description = {
            "mxnum": 1,
            "name": self.format.name,
            "block": self.format.block,
            "scale": self.format.scale.name,
            "tensor_scale": self.format.tensor_scale,
            "element": asdict(self.format.element),
            "shape": self.shape,
            "blocks": self.blocks,
        }
        parts: dict[str, Any] = {
            "description": np.array(json.dumps(description)),
            "packed": q.pack(),
            "scales": q.scales.view(code_dtype(self.format.scale.bits)),
        }
        if q.offsets is not None:
            parts["offsets"] = q.offsets
        if q.tensor_scale is not None:
            parts["tensor_scale"] = q.tensor_scale
        with written_whole(path) as partial, partial.open("wb") as file:
            np.savez(file, **parts)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that `save` wrote."""
        with reading(path := as_path(path), "must be one that MXArray.save wrote"):
            with open(path, "rb") as stream:
                file = np.load(stream, allow_pickle=False)
                errors.require_type(not isinstance(file, np.ndarray), "path", "an archive", "one array")
                parts = {name: file[name] for name in _PARTS if name in file.files}
            description = json.loads(str(parts["description"]))
            errors.require(description["mxnum"] == 1, "mxnum", "version 1 of the file format", description["mxnum"])
            kind = description["scale"], description["block"], description["name"], description.get("tensor_scale")
            fmt = MXFormat(formats.ElementFormat(**description["element"]), *kind)
            shape, blocks = tuple(description["shape"]), tuple(description["blocks"])
            packed, scales = parts["packed"], parts["scales"].view(scale_dtype(fmt.scale))
            row_shape, row_blocks = (
                shape or (1,),
                blocks or (1,),
            )  # an array without axes is stored as one row
            side = scales_shape(row_shape, row_blocks)
            errors.require(scales.size == math.prod(side), "scales", f"of shape {side}", scales.shape)
            offsets = parts["offsets"].reshape(side) if "offsets" in parts else None
            array = cls.from_packed(
                packed, scales.reshape(side), fmt, length=row_shape[-1], blocks=row_blocks, offsets=offsets,
                tensor_scale=parts.get("tensor_scale"),
            )  # fmt: skip
            errors.require(array.shape == row_shape, "shape", f"{array.shape}", row_shape)
        return array if shape else array.unpacked()[0]

    def __repr__(self) -> str:
        offsets = "" if self.offsets is None else ", float16 offsets"
        if self.tensor_scale is not None:
            offsets = ", a tensor scale" if self.tensor_scale.ndim == 0 else ", tensor scales"
        return (
            f"<MXArray {self.format.name} {self.shape}, blocks {self.blocks}{offsets}: "
            f"{self.packed_nbytes} bytes{', held packed' if self.is_packed else ' packed'}>"
        )


def parts_of(q: MXArray) -> tuple[Any, Any, Any]:
    """Return (codes, scales, offsets) as arrays for the engine, with one code in each byte."""
    return held_parts(q.unpacked())


def held_parts(q: MXArray) -> tuple[Any, Any, Any]:
    """Return (codes, scales, offsets) as arrays for the engine, with the codes as they are held."""
    offsets = None if q.offsets is None else as_array("offsets", q.offsets)
    return as_array("codes", q._stored), as_array("scales", q.scales), offsets


def held_tensor_scale(out: MXArray, tensor: Any) -> Any:
    """Return the tensor scale array of `out`, after a check that `tensor` can be written to it.

    Raise ValueError if writing would change the tensor scale of elements outside `out`.
    """
    held = checked_out(host_view("out.tensor_scale", out.tensor_scale), tensor.shape, tensor.dtype)
    if out._is_part and on_host(held).tobytes() != on_host(tensor).tobytes():
        raise errors.shared_tensor_scale("out")
    return held
