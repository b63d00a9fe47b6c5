"""Time conversions to and from NVFP4, by mxnum and by other packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

import mxnum as mx
from benchmarks.data import Array, normal, one_thread, size_name
from benchmarks.questions import Case, Cells, Session
from benchmarks.record import Table
from mxnum import stacks

TITLE = "How fast is NVFP4, compared with other packages?"
TEXT = """float32 arrays, blocks of 16 along rows, E4M3 scales and a computed tensor scale, one thread. The baseline
is `np.copyto` of the array. *To codes* gives packed codes and scales, as torchao, ModelOpt and compressed-tensors do;
*there and back* gives float32 values. With `arithmetic=`, mxnum reproduces another package's float32 operations
bit for bit. Packages are used eagerly, as their own tests use them. gfloat only rounds elements, so numpy computes its
scales. The baseline of the last table is `mxnum.quantize` to packed codes by the exact definition, measured in
alternation with each package."""

Run = Callable[[Array], Any]


def measure(session: Session) -> Cells:
    """Yield times relative to a copy, then the times of other packages relative to mxnum."""
    one_thread()
    for size in session.sizes_or((1 << 24,), (1 << 18,)):
        x = normal(size, session.seed)
        copy = partial(np.copyto, np.empty_like(x), x)
        table = Table(f"nvfp4_{size}", f"NVFP4, {size_name(size)} elements", "× np.copyto of the float32 array")
        yield from session.compare(table, copy, *_own(x))
        held = mx.quantize(x, "nvfp4", packed=True)
        exact = partial(mx.quantize, x, "nvfp4", out=held)
        yield from session.compare(table, copy, *_packages(x))
        times = Table(f"nvfp4_packages_{size}", f"Packages, {size_name(size)} elements", "× mxnum.quantize, packed")
        yield from session.compare(times, exact, *_packages(x))


def _own(x: Array) -> Iterator[Case]:
    values, held = np.empty_like(x), mx.quantize(x, "nvfp4", packed=True)

    def fake(**keywords: Any) -> Callable[[], object]:
        return lambda: mx.fake_quantize(x, "nvfp4", out=values, **keywords)

    yield Case("fake_quantize, out=", "there and back", fake(), limit=2.0)
    yield Case("quantize, packed, out=", "to codes", lambda: mx.quantize(x, "nvfp4", out=held), limit=1.6)
    yield Case("dequantize, packed, out=", "back", lambda: held.dequantize(out=values), limit=0.9)
    yield Case("fake_quantize, stochastic, out=", "there and back", fake(rounding="sr", seed=1), limit=6.0)
    for rule in ("four_over_six_absolute", "four_over_six_squared"):
        yield Case(f"fake_quantize, {rule}, out=", "there and back", fake(scale_rule=rule), limit=6.0)
    for stack in stacks.STACKS:
        row, packed = f"arithmetic={stack!r}, out=", partial(mx.quantize, x, "nvfp4", arithmetic=stack, out=held)
        yield Case(row, "there and back", fake(arithmetic=stack), limit=3.0)
        yield Case(row, "to codes", packed, limit=3.0)


def _packages(x: Array) -> Iterator[Case]:
    for name, (package, run) in _RUNS.items():
        missing = "" if find_spec(package) else f"{package} is not installed"
        yield Case(name, "to codes", None if missing else partial(run, x), skipped=missing)


def _tensor(x: Array) -> Any:
    import torch

    torch.set_num_threads(1)
    return torch.from_numpy(x)


def _torchao(x: Array) -> Any:
    from torchao.prototype.mx_formats import nvfp4_tensor

    tensor = _tensor(x)
    return nvfp4_tensor.nvfp4_quantize(tensor, 16, nvfp4_tensor.per_tensor_amax_to_scale(tensor.abs().max()))


def _modelopt(x: Array) -> Any:
    from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor

    return NVFP4QTensor.quantize(_tensor(x), 16)


def _compressed_tensors(x: Array) -> Any:
    import torch
    from compressed_tensors.compressors.nvfp4.helpers import quantize_and_pack_fp4
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam

    how = QuantizationArgs(
        num_bits=4, type="float", strategy="tensor_group", group_size=16, scale_dtype=torch.float8_e4m3fn
    )
    tensor = _tensor(x)
    global_scale, groups = generate_gparam(tensor.min(), tensor.max()), tensor.unflatten(-1, (-1, 16))
    scales, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), how, global_scale)
    return quantize_and_pack_fp4(tensor, scales, global_scale, None, 16)


def _gfloat(x: Array) -> Any:
    import gfloat
    from gfloat import formats

    blocks = x.reshape(-1, 16)
    tensor_scale = np.abs(x).max() / np.float32(448 * 6)
    wanted = np.abs(blocks).max(axis=1, keepdims=True) / (6 * tensor_scale)
    scales = gfloat.round_ndarray(formats.format_info_ocp_e4m3, wanted, sat=True)
    codes = gfloat.round_ndarray(formats.format_info_ocp_e2m1, blocks / (scales * tensor_scale), sat=True)
    return codes, scales


_RUNS: dict[str, tuple[str, Run]] = {
    "torchao nvfp4_quantize": ("torchao", _torchao),
    "compressed-tensors, quantize_and_pack_fp4": ("compressed_tensors", _compressed_tensors),
    "modelopt NVFP4QTensor.quantize": ("modelopt", _modelopt),
    "gfloat round_ndarray, numpy scales": ("gfloat", _gfloat),
}
