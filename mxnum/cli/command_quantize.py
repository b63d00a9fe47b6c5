"""``mxnum quantize``."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mxnum.cli import options

if TYPE_CHECKING:
    from mxnum.array import MXArray
    from mxnum.memory.dtypes import Array

#: The number of elements in one step of the progress bar.
_PIECE = 1 << 24
#: Up to this number of elements, quantizing without numba is faster than loading numba.
_FEW = 1 << 20


def quantize(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A .npy, .npz or .safetensors file.")],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="A .npz or .safetensors file, or with --values a .npy file.")
    ],
    format: options.Format = "mxfp8_e4m3",
    axis: Annotated[int, typer.Option(help="The axis along which elements share a scale.")] = -1,
    block_size: options.BlockSize = None,
    rounding: options.Rounding = "rne",
    scale_rule: options.FormatsScaleRule = None,
    overflow: options.Overflow = "saturate",
    nonfinite: options.Nonfinite = "block",
    seed: options.Seed = None,
    sr_bits: options.SrBits = 30,
    force: options.Force = False,
    values: Annotated[bool, typer.Option("--values", help="Write the quantized values in the input's dtype.")] = False,
    tensor: options.Tensor = None,
    as_dtype: options.AsDtype = None,
    as_json: options.AsJson = False,
) -> None:
    """Quantize an array to an MX format.

    The command writes packed codes and scales to OUT. Read OUT with `mxnum.MXArray.load` or
    `mxnum.interop.safetensors.load`. With --values, the command writes the quantized values instead
    of codes and scales. The command never leaves an incomplete file. --force replaces OUT if OUT
    exists. OUT may be the same file as IN if IN has no other tensors.

    Examples: `mxnum quantize x.npy x.npz -f mxfp4_e2m1`;
    `mxnum quantize x.npy y.npy --values --rounding sr --seed 7`.
    """
    from mxnum import errors
    from mxnum.cli.console import print_json
    from mxnum.cli.inputs import number_of_arrays, read_array
    from mxnum.cli.outputs import check_output
    from mxnum.engine import dispatch

    suffixes = (".npy",) if values else (".npz", ".safetensors")
    errors.require(target.suffix in suffixes, "OUT", f"a file that ends in {errors.joined(suffixes)}", str(target))
    check_output("OUT", target, force)
    x = read_array(source, tensor, as_dtype)
    if target.exists() and target.samefile(source) and (count := number_of_arrays(source)) > 1:
        errors.require(False, "OUT", f"another file than IN, which holds {count} tensors", str(target))
    fits = x.ndim > 0 or target.suffix != ".safetensors"
    errors.require(fits, "OUT", "a .npz file for an array without axes", str(target))
    settings: dict[str, Any] = {
        "axis": axis, "block_size": block_size, "rounding": rounding, "scale_rule": scale_rule, "overflow": overflow,
        "nonfinite": nonfinite, "seed": seed, "sr_bits": sr_bits,
    }  # fmt: skip
    with dispatch.uncompiled() if x.size <= _FEW else nullcontext():
        q = _quantized(x, format, settings)
        _write(q, target, tensor or source.stem, x.dtype.name if values else None)
    facts = {
        "input": str(source), "shape": x.shape, "dtype": x.dtype.name, "output": str(target), "format": q.format.name,
        "blocks": q.blocks, "packed bytes": q.packed_nbytes, "input bytes": x.nbytes,
    }  # fmt: skip
    if as_json:
        print_json(facts)
    else:
        ratio = f", {x.nbytes / q.packed_nbytes:.2f} times smaller" if not values and q.size else ""
        print(f"{target}: {q.format.name} {x.shape}, blocks {q.blocks}{ratio}")


def _quantized(x: Array, format: str, settings: dict[str, Any]) -> MXArray:
    """Quantize an array in pieces along the first axis, and show a progress bar.

    The array is not split if splitting could change the result.
    """
    import numpy as np

    import mxnum as mx
    from mxnum import formats
    from mxnum.array import MXArray
    from mxnum.cli.console import progress

    # Float scales may need a tensor scale, which depends on the whole array.
    is_power = formats.get(format).scale.power_of_two
    small = not is_power or x.ndim < 2 or x.size <= _PIECE or settings["axis"] % x.ndim == 0
    # Random bits (with a seed) and error messages depend on an element's index in the whole array,
    # so the array is not split.
    if small or settings["seed"] is not None or settings["nonfinite"] != "block":
        return mx.quantize(x, format, **settings)
    first = mx.quantize(x[:1], format, **settings)
    scales = np.empty((len(x), *first.scales.shape[1:]), np.uint8)
    codes = np.empty(x.shape, np.uint8)
    rows = max(1, _PIECE * len(x) // x.size)
    with progress("Quantizing", len(x)) as advance:
        for start in range(0, len(x), rows):
            piece = mx.quantize(x[start : start + rows], format, **settings)
            codes[start : start + rows], scales[start : start + rows] = piece.codes, piece.scales
            advance(len(piece))
    return MXArray.from_parts(codes, scales, format, axis=settings["axis"], block_size=settings["block_size"])


def _write(q: MXArray, target: Path, name: str, dtype: str | None) -> None:
    """Write the values of an `MXArray` in `dtype`, or its codes and scales if `dtype` is None.

    `name` is the tensor's name in a safetensors file.
    """
    if dtype is not None:
        import numpy as np

        from mxnum.output.files import written_whole

        with written_whole(target) as partial, partial.open("wb") as file:
            np.save(file, q.dequantize(dtype))
    elif target.suffix == ".npz":
        q.save(target)
    else:
        from mxnum.interop import safetensors

        safetensors.save(target, {name: q})
