"""Compare the conversions of other libraries with the right answers.

Each conversion is compared in the modes that its library claims.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import platform
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import mxnum
from mxnum.conformance.calling import Implementation
from mxnum.conformance.cases.batches import cases
from mxnum.conformance.check import judge_all
from mxnum.conformance.judging.collector import Collector
from mxnum.conformance.judging.report import Report
from mxnum.conformance.operations import make_task
from mxnum.formats import E8M0
from mxnum.formats import get as get_format
from mxnum.formats import names as format_names
from mxnum.memory.dtypes import ML_DTYPES, Array
from mxnum.ops import shared_scale

LIBRARIES = (
    "ml_dtypes", "gfloat", "torch", "torchao", "compressed-tensors", "nvidia-modelopt", "onnx", "gguf",
)  # fmt: skip
_FLOAT_ELEMENTS = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")


@dataclass(frozen=True)
class Peer:
    """One conversion of one library."""

    library: str
    #: The name of the library function, with its options, as the table shows it.
    call: str
    operation: str
    format: str
    function: Callable[..., Any]
    #: The modes that the conversion claims to implement, as keywords of `mxnum.conformance.check`.
    claims: dict[str, Any] = field(default_factory=dict)


def version(library: str) -> str | None:
    """Return a library's version, without build tags, or None if it is not installed."""
    try:
        return importlib.metadata.version(library).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def peers(library: str) -> list[Peer]:
    """Import an installed library without its messages, and return its conversions."""
    makers = {
        "ml_dtypes": _ml_dtypes,
        "gfloat": _gfloat,
        "torch": _torch,
        "torchao": _torchao,
        "compressed-tensors": _compressed_tensors,
        "nvidia-modelopt": _modelopt,
        "onnx": _onnx,
        "gguf": _gguf,
    }
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        return list(makers[library]())


def _formats_of(*elements: str) -> Iterator[tuple[str, str]]:
    for name in format_names("e8m0"):
        if get_format(name).element.name in elements:
            yield name, get_format(name).element.name


def _ml_dtypes() -> Iterator[Peer]:
    import ml_dtypes

    for name, element in _formats_of(*_FLOAT_ELEMENTS):
        dtype = getattr(ml_dtypes, ML_DTYPES[element])
        for source in ("float32", "float64", "bfloat16"):
            call = f"{source} astype({ML_DTYPES[element]})"
            claims = {"overflow": "ieee", "source": source}
            yield Peer("ml_dtypes", call, "encode", name, _casting(dtype), claims)
        call = f"{ML_DTYPES[element]} times float8_e8m0fnu, in float32"
        yield Peer("ml_dtypes", call, "dequantize", name, _multiplying(dtype, ml_dtypes.float8_e8m0fnu))


def _casting(dtype: Any) -> Callable[[Array], Array]:
    return lambda x: x.astype(dtype)


def _multiplying(dtype: Any, scale_dtype: Any) -> Callable[[Array, Array], Array]:
    return lambda codes, scales: codes.view(dtype).astype(np.float32) * scales.view(scale_dtype).astype(np.float32)


def _gfloat() -> Iterator[Peer]:
    import gfloat
    from gfloat import RoundMode, formats

    infos = {element: getattr(formats, f"format_info_ocp_{element}") for element in (*_FLOAT_ELEMENTS, "int8")}
    modes = {
        "rne": RoundMode.TiesToEven, "rna": RoundMode.TiesToAway, "rtz": RoundMode.TowardZero,
        "rtp": RoundMode.TowardPositive, "rtn": RoundMode.TowardNegative,
    }  # fmt: skip

    def converting(element: str, mode: Any, saturate: bool, x: Array) -> Array:
        rounded = gfloat.round_ndarray(infos[element], x.astype(np.float64), mode, saturate)
        codes: Array = gfloat.encode_ndarray(infos[element], rounded)
        return codes.astype(np.uint8)

    def drawing(element: str, mode: Any, x: Array, words: Array) -> Array:
        bits = (words & 0xFF).astype(np.int64)
        rounded = gfloat.round_ndarray(infos[element], x.astype(np.float64), mode, True, bits, 8)
        codes: Array = gfloat.encode_ndarray(infos[element], rounded)
        return codes.astype(np.uint8)

    def in_blocks(info: Any, x: Array) -> tuple[Array, Array]:
        rows = []
        for row in x.astype(np.float64):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scale = gfloat.compute_scale_amax(info.etype.emax, row)
                try:
                    rows.append(list(gfloat.encode_block(info, scale, row / scale)))
                except ValueError:  # gfloat raises ValueError for NaN if the element has no NaN: return a block of NaN
                    rows.append([E8M0.nan_code] + [0] * len(row))
        codes = np.array(rows, np.uint8)
        return codes[:, 1:], codes[:, 0]

    for name, element in _formats_of(*_FLOAT_ELEMENTS, "int8"):
        whole = partial(in_blocks, getattr(formats, f"format_info_{name}"))
        yield Peer("gfloat", "compute_scale_amax, encode_block", "quantize", name, whole)
        for rounding, mode in modes.items():
            both = rounding == "rne" and element in ("e4m3", "e5m2")
            for overflow in ("saturate", "ieee") if both else ("saturate",):
                call = f"round_ndarray, {mode.name}, sat={overflow == 'saturate'}"
                claims = {"rounding": rounding, "overflow": overflow}
                yield Peer(
                    "gfloat", call, "encode", name, partial(converting, element, mode, overflow == "saturate"), claims
                )
        for mode in (RoundMode.Stochastic, RoundMode.StochasticFast, RoundMode.StochasticFastest):
            drawn: dict[str, Any] = {"rounding": "sr", "sr_bits": 8}
            yield Peer(
                "gfloat", f"round_ndarray, {mode.name}, 8 bits", "encode", name, partial(drawing, element, mode), drawn
            )


def _torch() -> Iterator[Peer]:
    import torch

    def casting(dtype: Any) -> Callable[[Array], Any]:
        return lambda x: torch.from_numpy(x).to(dtype)

    def multiplying(dtype: Any, codes: Array, scales: Array) -> Any:
        e8m0 = torch.from_numpy(scales).view(torch.float8_e8m0fnu)
        return torch.from_numpy(codes).view(dtype).to(torch.float32) * e8m0.to(torch.float32)

    for name, element in _formats_of("e4m3", "e5m2"):
        label = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}[element]
        dtype = getattr(torch, label)
        for source in ("float32", "float64"):
            call = f"{source} to({label})"
            overflow = "saturate" if element == "e4m3" else "ieee"
            yield Peer("torch", call, "encode", name, casting(dtype), {"overflow": overflow, "source": source})
        yield Peer(
            "torch", f"{label} times float8_e8m0fnu, in float32", "dequantize", name, partial(multiplying, dtype)
        )


def _torchao() -> Iterator[Peer]:
    import torch
    from torchao.prototype.mx_formats import mx_tensor, nvfp4_tensor

    dtypes: dict[str, Any] = {
        "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "e3m2": "fp6_e3m2", "e2m3": "fp6_e2m3",
        "e2m1": torch.float4_e2m1fn_x2,
    }  # fmt: skip

    def quantizing(element: str, rule: Any, x: Array) -> tuple[Any, Any]:
        scale, data = mx_tensor.to_mx(torch.from_numpy(x), dtypes[element], x.shape[1], rule)
        return data, scale

    def dequantizing(element: str, codes: Array, scales: Array) -> Any:
        pairs = np.stack([codes, codes], axis=-1)
        stored = pairs[:, 0] | pairs[:, 1] << 4 if element == "e2m1" else pairs
        data = torch.from_numpy(stored)
        data = (
            data.view(dtypes[element]) if element in ("e4m3", "e5m2") else data
        )  # elements other than E4M3 and E5M2 are stored as bytes
        e8m0 = torch.from_numpy(scales).view(torch.float8_e8m0fnu)
        values = mx_tensor.to_dtype(data.reshape(len(codes), -1), e8m0, dtypes[element], 2, torch.float32)
        return values.reshape(len(codes), 2)[:, 0]

    for name, element in _formats_of(*dtypes):
        for rule in mx_tensor.ScaleCalculationMode:
            claims = {"scale_rule": rule.value}
            yield Peer("torchao", f"to_mx, {rule.name}", "quantize", name, partial(quantizing, element, rule), claims)
        yield Peer("torchao", "to_dtype, float32", "dequantize", name, partial(dequantizing, element))

    def nvfp4(x: Array) -> tuple[Any, Any]:
        tensor = torch.from_numpy(x)
        of_tensor = nvfp4_tensor.per_tensor_amax_to_scale(tensor.abs().max())
        scales, data = nvfp4_tensor.nvfp4_quantize(tensor, 16, of_tensor)
        return data, scales

    yield Peer("torchao", "per_tensor_amax_to_scale, nvfp4_quantize", "quantize", "nvfp4", nvfp4)


def _compressed_tensors() -> Iterator[Peer]:
    import torch
    from compressed_tensors.compressors.nvfp4.helpers import quantize_and_pack_fp4
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam

    how = QuantizationArgs(
        num_bits=4, type="float", strategy="tensor_group", group_size=16, scale_dtype=torch.float8_e4m3fn
    )

    def nvfp4(x: Array) -> tuple[Any, Any]:
        tensor = torch.from_numpy(x)
        of_tensor = generate_gparam(tensor.min(), tensor.max())
        scales, _ = calculate_qparams(tensor.amin(1), tensor.amax(1), how, of_tensor)
        data = quantize_and_pack_fp4(tensor, scales[:, None], of_tensor, None, 16)
        return data, scales.to(torch.float8_e4m3fn)

    call = "generate_gparam, calculate_qparams, quantize_and_pack_fp4"
    yield Peer("compressed-tensors", call, "quantize", "nvfp4", nvfp4)


def _modelopt() -> Iterator[Peer]:
    import torch
    from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor

    def nvfp4(x: Array) -> tuple[Any, Any]:
        made, scales, _ = NVFP4QTensor.quantize(torch.from_numpy(x), 16)
        return made._quantized_data, scales

    yield Peer("nvidia-modelopt", "NVFP4QTensor.quantize", "quantize", "nvfp4", nvfp4)


def _onnx() -> Iterator[Peer]:
    import ml_dtypes
    import onnx
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    from mxnum.interop.onnx import TYPES

    kinds = {e: int(getattr(TensorProto, name)) for e, name in TYPES.items() if hasattr(TensorProto, name)}
    numpy_types = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT8E8M0: ml_dtypes.float8_e8m0fnu}
    opset = min(25, onnx.defs.onnx_opset_version())

    def evaluated(operator: str, inputs: dict[str, tuple[int, Array]], result: int, **attributes: Any) -> Array:
        """Run one ONNX operator on arrays, each given with its ONNX type, and return the result."""
        named = [helper.make_tensor_value_info(name, kind, list(a.shape)) for name, (kind, a) in inputs.items()]
        shape = list(next(iter(inputs.values()))[1].shape)
        node = helper.make_node(operator, list(inputs), ["y"], axis=-1, output_dtype=result, **attributes)
        graph = helper.make_graph([node], "g", named, [helper.make_tensor_value_info("y", result, shape)])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        feeds = {name: array for name, (_, array) in inputs.items()}
        y: Array = ReferenceEvaluator(model).run(None, feeds)[0]
        return y

    def encoding(element: str, saturate: bool, x: Array) -> Array:
        unit = np.full((len(x), 1), 2.0**-6 if element == "int8" else 1.0, np.float32)
        inputs = {"x": (TensorProto.FLOAT, x.reshape(-1, 1)), "s": (TensorProto.FLOAT, unit)}
        how = {} if element == "int8" else {"saturate": int(saturate)}
        return evaluated("QuantizeLinear", inputs, kinds[element], block_size=1, **how).ravel()

    def quantizing(name: str, element: str, x: Array) -> tuple[Array, Array]:
        scales = shared_scale(x, name)
        e8m0 = scales.view(numpy_types[TensorProto.FLOAT8E8M0])
        inputs = {"x": (TensorProto.FLOAT, x), "s": (TensorProto.FLOAT8E8M0, e8m0)}
        return evaluated("QuantizeLinear", inputs, kinds[element], block_size=x.shape[1]), scales

    def dequantizing(element: str, codes: Array, scales: Array) -> Array:
        elements = codes.view(getattr(ml_dtypes, ML_DTYPES[element])).reshape(-1, 1)
        e8m0 = scales.view(numpy_types[TensorProto.FLOAT8E8M0]).reshape(-1, 1)
        inputs = {"x": (kinds[element], elements), "s": (TensorProto.FLOAT8E8M0, e8m0)}
        return evaluated("DequantizeLinear", inputs, TensorProto.FLOAT, block_size=1).ravel()

    for name, element in _formats_of(*kinds):
        for overflow in ("saturate", "ieee") if element in ("e4m3", "e5m2") else ("saturate",):
            call = f"QuantizeLinear{', saturate=0' if overflow == 'ieee' else ''}"
            yield Peer(
                "onnx", call, "encode", name, partial(encoding, element, overflow == "saturate"), {"overflow": overflow}
            )
        if element != "int8":
            call = "QuantizeLinear in blocks, given the right scales"
            yield Peer("onnx", call, "quantize", name, partial(quantizing, name, element))
            yield Peer("onnx", "DequantizeLinear, float32", "dequantize", name, partial(dequantizing, element))


def _gguf() -> Iterator[Peer]:
    import gguf

    def quantize(x: Array) -> tuple[Array, Array]:
        blocks: Array = gguf.quants.MXFP4.quantize_blocks(x).reshape(-1, 17)
        halves = blocks[:, 1:] & 15, blocks[:, 1:] >> 4  # a byte holds elements i and i + 16
        return np.concatenate(halves, axis=1), blocks[:, 0]

    def dequantize(codes: Array, scales: Array) -> Array:
        blocks = np.zeros((len(codes), 17), np.uint8)
        blocks[:, 0], blocks[:, 1] = scales, codes
        values: Array = gguf.quants.MXFP4.dequantize_blocks(blocks)
        return values[:, 0]

    yield Peer("gguf", "MXFP4.quantize_blocks", "quantize", "mxfp4_e2m1", quantize)
    yield Peer("gguf", "MXFP4.dequantize_blocks", "dequantize", "mxfp4_e2m1", dequantize)


#: The page shows the smallest failing input for at most this many wrong parts of a conversion (such
#: as scales).
PARTS = 4
#: The number of examples that Hypothesis tries for each part. If no example fails, the numbers of a
#: known failure are simplified one by one.
EXAMPLES = 100


_HEAD = """# Conformance of other libraries

This page compares the answers of other libraries with the right answers. The cases are level 1 of
the test vectors: every rounding boundary and its neighbours, all special values, and all extreme
scales.

*Claims* are the modes that a call is assumed to implement. *By choice* is the number of cases whose
answers differ only in points that the standard leaves open (see {doc}`/reference/test-vectors`).
*Wrong* is the number of cases with any other difference. If a block contains an infinity, two
answers are permitted: either the whole block becomes NaN, or only the infinite element is affected.
In the second case, the finite elements determine the scale. Any other answer counts as wrong,
although the standard does not define the right answer. If a call raises an error for NaN because
the element has no code for NaN, cases with NaN are not counted.

A conversion that was written for another purpose (for example, without subnormal scales) may be
right for that purpose. For NVFP4, *wrong* means only that an answer differs from this library's
exact definition, which no package computes. The finding then names the package whose arithmetic
explains the answers ({doc}`/explanation/which-nvfp4`).

Where possible, a finding names a mistake that explains all answers, wrong and right. The mistakes
in scales and in codes, or in different classes of cases, can differ. A class, such as *tie* or
*scale at its limit*, is a kind of case. In a finding, `[inf 1 0 x30]` is a block of an infinity, a
1 and 30 zeros.

Made by `mxnum conformance --force --out docs/reference/conformance.md`.

"""


@dataclass(frozen=True)
class Row:
    """The outcome for one conversion."""

    peer: Peer
    report: Report
    #: For each wrong part, such as "scale": the smallest failing input, in words.
    smallest: dict[str, str]

    def cells(self) -> list[str]:
        """Return the cells of the conversion's row in the table."""
        r = self.report
        claims = ", ".join(f"{key} {value}" for key, value in self.peer.claims.items() if key != "source") or "–"
        named = [f"{name} ({count})" for name, count in sorted(r.choices.items())]
        choices = ", ".join([*named, *[f"NaN raises {r.refused}"] * bool(r.refused)]) or "–"
        return [
            self.peer.operation, r.task.format.name, f"`{self.peer.call}`", claims, str(r.cases), choices, str(r.bugs)
        ]  # fmt: skip

    def finding(self) -> str | None:
        """Return a paragraph about the wrong answers, or None if no answer is wrong."""
        r = self.report
        if not r.bugs:
            return None
        text = f"**{self.peer.operation}, {r.task.format.name}, `{self.peer.call}`**: {r.bugs} of {r.cases} cases"
        for explanation in r.explanations:
            text += f"; {explanation.claim}{explanation.doubt}"
        for name, (followed, kept) in r.inconsistent.items():
            text += f"; {followed} answers follow the choice {name}, but {kept} other answers do not"
        by_class = ", ".join(f"{name} {b} of {c}" for name, (c, b) in r.classes.items() if b)
        found = "".join(f"\n  - {part}: {text}" for part, text in self.smallest.items())
        return f"{text}. Wrong by class: {by_class or 'none but by choice'}.{found}"


def row_of(peer: Peer) -> Row:
    """Run the cases of level 1 on one conversion and return the outcome."""
    task = make_task(peer.operation, peer.format, **peer.claims)
    collector, implementation = Collector(task), Implementation(peer.function)
    judge_all(collector, implementation, cases(task))
    report = collector.report()
    from mxnum.conformance.shrink import smallest_failure

    smallest = {}
    for part, first in list(report.by_part.items())[:PARTS]:
        case = smallest_failure(implementation, report, first, EXAMPLES)
        smallest[f"{part} ({report.parts[part]})"] = case.body(task)
    return Row(peer, report, smallest)


def rows_of(library: str, advance: Callable[[str], object] = lambda what: None) -> list[Row]:
    """Return the outcomes for all conversions of a library."""
    rows = []
    for peer in peers(library):
        advance(f"{library}: {peer.operation} {peer.format} {peer.call}")
        rows.append(row_of(peer))
    return rows


def section(library: str, rows: Iterable[Row]) -> str:
    """Return the section of the page about one library: its table and findings."""
    rows = list(rows)
    titles = ["operation", "format", "call", "claims", "cases", "by choice", "wrong"]
    lines = [f"## {library} {version(library)}", "", _line(titles), _line(["---"] * len(titles))]
    lines += [_line(row.cells()) for row in rows]
    findings = [finding for row in rows if (finding := row.finding())]
    if findings:
        lines += ["", "Findings, each with the smallest input found that shows it:", ""]
        lines += [f"- {finding}" for finding in findings]
    else:
        lines += ["", "Nothing is wrong."]
    return "\n".join(lines) + "\n"


def page(sections: Iterable[str]) -> str:
    """Return the page: an introduction and the sections about the libraries."""
    return _HEAD + (
        f"mxnum {mxnum.__version__}, Python {platform.python_version()}, numpy {np.__version__}, "
        f"{platform.machine()}.\n\n" + "\n".join(sections)
    )


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page_of(libraries: Iterable[str], advance: Callable[[str], object] = lambda what: None) -> str:
    """Return the page about these libraries, with a note for each library that is not installed."""
    sections = []
    for library in libraries:
        if version(library) is None:
            sections.append(f"## {library}\n\nThis library was not installed on the machine that made this page.\n")
        else:
            sections.append(section(library, rows_of(library, advance)))
    return page(sections)
