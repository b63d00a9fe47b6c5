"""Read and write quantized weights in safetensors checkpoints of several programs.

A checkpoint is a file, or a folder of files. Tensors are mapped into memory and read only when they
are used, so a checkpoint may be larger than memory. The names of a weight's tensors determine how
the weight is stored. In this list, w is the weight's name:

- ``w_packed w_scale w_global_scale``: NVFP4 of compressed-tensors (`mxnum.interop.nvfp4`)
- ``w w_scale w_scale_2``: NVFP4 of ModelOpt
- ``w_packed w_scale``, both of bytes: MXFP4 of compressed-tensors
- ``w w_scale_inv``, ``w w_scale``: FP8 (`mxnum.interop.fp8`)
- ``w_blocks w_scales`` or ``w.blocks w.scales``: MXFP4 of gpt-oss (`mxnum.interop.gpt_oss`)
- tensors that `mxnum.interop.safetensors` saved
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mxnum import errors
from mxnum.array import MXArray
from mxnum.interop.fp8 import from_fp8, to_fp8
from mxnum.interop.gpt_oss import from_gpt_oss, to_gpt_oss
from mxnum.interop.nvfp4 import DIRECTIONS, from_nvfp4, to_nvfp4
from mxnum.interop.safetensors import File
from mxnum.layout import block_lengths
from mxnum.memory.dtypes import Array
from mxnum.output.files import as_path, reading

#: The layouts that `to_tensors` writes. `_DIRECTION` maps each program to the step in which the
#: global scale multiplies numbers: encoding or decoding.
LAYOUTS = "compressed_tensors", "modelopt", "deepseek", "gpt_oss"
_DIRECTION = {"compressed-tensors": "encode", "modelopt": "decode"}
_FP8 = "F8_E4M3", "F8_E5M2"
_BYTE_SCALES = "U8", "F8_E8M0"


class _Weight(NamedTuple):
    """The layout of a weight, and the names of the tensors that hold its parts."""

    layout: str
    parts: tuple[str, ...]


class Checkpoint:
    """An open checkpoint, which returns weights as `MXArray` or, if not quantized, as arrays.

    For NVFP4, the names of tensors determine whether the global scale multiplies numbers on
    encoding or on decoding. If the ``quant_method`` in the checkpoint's ``config.json`` contradicts
    the names, `direction` ("encode" or "decode") must be given.

    `block_shape` is the shape of the tiles of FP8 weights. The default is the ``weight_block_size``
    in ``config.json``, or the default of `from_fp8` if this entry is missing. The tensors alone do
    not determine the tile: tiles of 96 x 96 may need as many scales as tiles of 128 x 128.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        direction: str | None = None,
        block_shape: tuple[int, int] | None = None,
    ) -> None:
        self._path = as_path(path)
        if direction is not None:
            errors.choose("direction", direction, DIRECTIONS)
        is_folder = self._path.is_dir()
        config = _quantization_config(self._path if is_folder else self._path.parent)
        self._direction, self._method = direction, str(config.get("quant_method"))
        tile = block_lengths("block_shape", block_shape)
        self._tile: Any = tile or block_lengths("weight_block_size", config.get("weight_block_size"))
        #: The file of each tensor. The parts of a weight may be in different files.
        self._files: dict[str, File] = {}
        own, kinds = list[str](), dict[str, str]()
        for shard, indexed in (_shards(self._path) if is_folder else {self._path: []}).items():
            file = File(shard)
            plain, mx_names, stored = file.plain_names(), file.mx_names(), set(file.names())
            for name in indexed:
                if name not in stored:
                    raise ValueError(f"File {str(shard)!r} must hold {name!r}, because the folder's index says so.")
            for name in (*mx_names, *plain):
                if name in self._files:
                    raise ValueError(f"Checkpoint {str(path)!r} must hold each tensor once, not {name!r} twice.")
                self._files[name] = file
            own += mx_names
            kinds |= {name: file.dtype(name) for name in plain}
        self._weights: dict[str, _Weight] = {}
        for name, weight in (*((name, _Weight("mxnum", (name,))) for name in own), *_weights_of(kinds)):
            if name in self._weights:
                layouts = f"{self._weights[name].layout} and {weight.layout}"
                raise ValueError(f"Checkpoint {str(path)!r} must hold each weight once, not {name!r} as {layouts}.")
            self._weights[name] = weight

    def names(self) -> list[str]:
        """Return the name of every weight, quantized or not."""
        return list(self._weights)

    def layout(self, name: str) -> str:
        """Return the name of a weight's layout, or ``plain`` if the weight is not quantized."""
        return self._found(name).layout

    def tensor(self, name: str) -> MXArray | Array:
        """Return a weight, mapped into memory: an `MXArray` if it is quantized, else an array."""
        layout, parts = self._found(name)
        if layout == "mxnum":
            return self._files[name].mx(name)
        if layout == "plain":
            self._check_complete(name)
            return self._files[name].tensor(name)
        direction = self._direction_of(layout, name) if layout.startswith("nvfp4") else ""
        with reading(self._path, f"must hold {name!r} in the layout {layout}"):
            stored = [self._files[part].tensor(part) for part in parts]
            if (zero_point := f"{name}_zero_point") in self._files:
                largest = np.abs(self._files[zero_point].tensor(zero_point).astype(np.float32)).max(initial=0)
                errors.require(largest == 0, zero_point, "zero, because mxnum's formats have no zero point", largest)
            if direction:
                return from_nvfp4(*stored, direction=direction)
            if layout == "mxfp4 gpt_oss":
                return from_gpt_oss(*stored)
            if layout == "mxfp4 compressed_tensors":
                codes = stored[1].view(np.uint8)
                return MXArray.from_packed(stored[0], codes, "mxfp4_e2m1", length=2 * stored[0].shape[-1])
            return from_fp8(*stored, block_shape=self._tile_of(stored[0], stored[1], parts[1].endswith("_scale_inv")))

    def _found(self, name: str) -> _Weight:
        return self._weights[errors.choose("name", name, list(self._weights))]

    def _check_complete(self, name: str) -> None:
        """Raise ValueError if `name` is an NVFP4 weight whose global scale is missing."""
        weight = name.removesuffix("_packed")
        scale, of_tensor = f"{weight}_scale", f"{weight}_global_scale" if weight != name else f"{weight}_scale_2"
        kinds = [self._files[part].dtype(part) for part in (name, scale) if part in self._files]
        if kinds == ["U8", "F8_E4M3"]:
            raise ValueError(
                f"Checkpoint {str(self._path)!r} must hold {of_tensor!r} as well as {name!r} and {scale!r}."
            )

    def _tile_of(self, weight: Array, scales: Array, is_inverse: bool) -> Any:
        """Return the shape of a weight's tiles; None if it is unknown or the weight has no tiles.

        A weight has no tiles if it has a single scale, or a scale for each row or part of a row.
        The name and the shape of the scales show whether this is the case.
        """
        if self._tile is None or scales.size == 1:
            return None
        fits = scales.shape[-2:] == tuple(-(-n // t) for n, t in zip(weight.shape[-2:], self._tile, strict=False))
        return self._tile if is_inverse or fits or scales.shape[:-1] != weight.shape[:-1] else None

    def _direction_of(self, layout: str, name: str) -> str:
        if self._direction is not None:
            return self._direction
        by_name = "encode" if layout == "nvfp4 compressed_tensors" else "decode"
        if _DIRECTION.get(self._method, by_name) != by_name:
            raise ValueError(
                f"Argument 'direction' must be given for {name!r}, because its tensors are named as in "
                f"{layout.split()[1]}, but the checkpoint's quant_method is {self._method!r}."
            )
        return by_name


def _shards(folder: Path) -> dict[Path, list[str]]:
    """Return the files of a checkpoint, each with the tensor names that the index lists for it.

    If the folder has no index, all its safetensors files belong to the checkpoint.
    """
    usual = folder / "model.safetensors.index.json"  # preferred if there are several indexes
    indexes = [usual] if usual.exists() else sorted(folder.glob("*.safetensors.index.json"))
    if len(indexes) > 1:
        named = " and ".join(repr(index.name) for index in indexes)
        raise ValueError(f"Folder {str(folder)!r} must hold one index, not {named}.")
    found: dict[Path, list[str]] = {path: [] for path in sorted(folder.glob("*.safetensors")) if not indexes}
    for index in indexes:
        with reading(index, "must be an index in JSON"):
            files = _table("weight_map", _table("its content", json.loads(index.read_text()))["weight_map"])
            for name, file in files.items():
                # Do not resolve links: the files in a download cache may be links to other folders.
                if not isinstance(file, str) or Path(file).anchor or ".." in Path(file).parts:
                    raise ValueError(f"it lists {name!r} in the file {file!r}, which is not in the index's folder")
                found.setdefault(folder / file, []).append(name)
    if not (found or indexes):
        raise ValueError(f"Folder {str(folder)!r} must hold files that end in .safetensors; it has none.")
    return dict(sorted(found.items()))


def _quantization_config(folder: Path) -> dict[str, Any]:
    """Return the quantization settings of the checkpoint's ``config.json``, or an empty dict."""
    path = folder / "config.json"
    if not path.is_file():
        return {}
    with reading(path, "must be a configuration in JSON"):
        found = _table("its content", json.loads(path.read_text())).get("quantization_config") or {}
        return _table("quantization_config", found)


def _table(name: str, found: Any) -> dict[str, Any]:
    """Return `found`, a part of a JSON file; raise TypeError unless it is a JSON object."""
    if not isinstance(found, dict):
        raise TypeError(f"{name} is a {type(found).__name__}, not a JSON object")
    return found


def _weights_of(kinds: dict[str, str]) -> list[tuple[str, _Weight]]:
    """Return the name and the `_Weight` of each weight, given the names and types of tensors."""
    found, used = list[tuple[str, _Weight]](), set[str]()
    for name in kinds:
        for weight, layout, parts in _readings(name, kinds):
            found.append((weight, _Weight(layout, parts)))
            used |= set(parts)
            break
    return found + [(name, _Weight("plain", (name,))) for name in kinds if name not in used]


def _readings(name: str, kinds: dict[str, str]) -> Any:
    """Yield (weight name, layout, parts) for each layout that a weight's tensors may have.

    `name` is the name of a tensor that may hold the elements of a weight. `parts` are the names of
    all tensors of this weight.
    """
    kind = kinds[name]
    for ending in (".blocks", "_blocks"):
        scales = f"{name.removesuffix('blocks')}scales"
        if name.endswith(ending) and kinds.get(scales) == kind == "U8":
            yield name.removesuffix(ending), "mxfp4 gpt_oss", (name, scales)
    weight = name.removesuffix("_packed")
    if weight != name and kind == "U8":
        scale, of_tensor = f"{weight}_scale", f"{weight}_global_scale"
        if of_tensor in kinds and scale in kinds:
            yield weight, "nvfp4 compressed_tensors", (name, scale, of_tensor)
        if kinds.get(scale) in _BYTE_SCALES:
            yield weight, "mxfp4 compressed_tensors", (name, scale)
    for scale in (f"{name}_scale", f"{name}_weight_scale"):
        if kind == "U8" and scale in kinds and f"{scale}_2" in kinds:
            yield name, "nvfp4 modelopt", (name, scale, f"{scale}_2")
    fitting = [scale for scale in (f"{name}_scale_inv", f"{name}_scale") if kind in _FP8 and scale in kinds]
    if len(fitting) == 2:
        raise ValueError(f"Weight {name!r} must have one tensor of scales, not both {fitting[0]!r} and {fitting[1]!r}.")
    for scale in fitting:
        yield name, "fp8", (name, scale)


def to_tensors(name: str, q: MXArray, layout: str, *, global_scale: Any = None) -> dict[str, Array]:
    """Return the tensors that store a weight in one of `LAYOUTS`, as a dict from names to tensors.

    `mxnum.interop.safetensors.save` writes the returned tensors to a file. The layout
    ``compressed_tensors`` stores NVFP4 (with `global_scale` as in `to_nvfp4`), MXFP4, MXFP8, FP8.
    ``modelopt`` stores NVFP4 and FP8. ``deepseek`` stores FP8, with scales named
    ``weight_scale_inv`` instead of ``weight_scale``. ``gpt_oss`` stores MXFP4. If the tiles of an
    FP8 weight are not 128 x 128, write the shape of a tile as ``weight_block_size`` to the
    ``quantization_config`` in ``config.json``.
    """
    errors.choose("layout", layout, LAYOUTS)
    errors.require_type(isinstance(q, MXArray), "q", "an MXArray", type(q).__name__)
    is_nvfp4 = q.format.tensor_scale is not None
    errors.require(is_nvfp4 or global_scale is None, "global_scale", f"left out for {q.format.name}", global_scale)
    if layout == "gpt_oss":
        blocks, scales = to_gpt_oss(q)
        return {f"{name}_blocks": blocks, f"{name}_scales": scales}
    if is_nvfp4 and layout == "compressed_tensors":
        parts = to_nvfp4(q, direction="encode", global_scale=global_scale)
        return dict(zip((f"{name}_packed", f"{name}_scale", f"{name}_global_scale"), parts, strict=True))
    if is_nvfp4 and layout == "modelopt":
        parts = to_nvfp4(q, direction="decode", global_scale=global_scale)
        return dict(zip((name, f"{name}_scale", f"{name}_scale_2"), parts, strict=True))
    if q.format.element.name == "e2m1" and layout == "compressed_tensors":
        blocks, scales = to_gpt_oss(q)
        return {f"{name}_packed": blocks.reshape(*scales.shape[:-1], -1), f"{name}_scale": scales}
    errors.require(q.format.element.name != "e2m1", "layout", f"one that stores {q.format.name}", layout)
    weight, scales = to_fp8(q)
    if layout == "compressed_tensors" and q.format.scale.power_of_two:
        scales = scales.view(np.uint8)  # compressed_tensors computes exponents from the codes of MXFP8's scales
    return {name: weight, f"{name}_scale{'_inv' if layout == 'deepseek' else ''}": scales}
