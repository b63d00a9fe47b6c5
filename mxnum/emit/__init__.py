"""Reference models in other languages, translated from the definition.

`reference_model` and `matrix_unit_model` return a self-contained file: a C header, SystemVerilog
functions, a JavaScript module or plain Python. The command ``mxnum emit`` writes a reference model
to a file. `explorer` returns an HTML page that explains a quantization, which ``mxnum explain
--html`` writes to a file.
"""

from __future__ import annotations

import re
from typing import Any

from mxnum import errors
from mxnum.formats import MXFormat
from mxnum.modes import FloatScaleRule, Nonfinite, Overflow, Rounding, ScaleRule
from mxnum.units import MatrixUnit

__all__ = ["LANGUAGES", "explorer", "matrix_unit_model", "reference_model"]

#: For each language, the module and the name of the class that prints models in this language.
LANGUAGES = {
    "c": ("in_c", "C"),
    "systemverilog": ("in_systemverilog", "SystemVerilog"),
    "javascript": ("in_javascript", "JavaScript"),
    "python": ("in_python", "Python"),
}


def reference_model(
    language: str,
    format: str | MXFormat = "mxfp8_e4m3",
    *,
    source: str = "float32",
    target: str = "float32",
    rounding: str | Rounding = "rne",
    scale_rule: str | ScaleRule | FloatScaleRule | None = None,
    overflow: str | Overflow = "saturate",
    nonfinite: str | Nonfinite = "block",
    sr_bits: int = 30,
    name: str | None = None,
) -> str:
    """Return a reference model of a format, as the text of a self-contained file.

    The model has the functions `encode`, `decode` and `shared_scale` for bit patterns,
    `quantize_block` and `dequantize_block` for blocks of numbers and, for a format with a tensor
    scale, `tensor_scale`. The functions for bit patterns are translations of the definition's
    functions, which compute with integers only.

    Parameters
    ----------
    language
        ``"c"`` (a C99 header, for C++ too), ``"systemverilog"`` (a package of functions),
        ``"javascript"`` (an ES module) or ``"python"``.
    format
        An MX format.
    source, target
        The float types: `encode` takes numbers of type `source`, and `decode` returns numbers of
        type `target`.
    rounding, scale_rule, overflow, nonfinite, sr_bits
        The modes, as in `mxnum.quantize`. A scale rule that tries several scales has no model.
    name
        The prefix of all names in C, and the name of the package in SystemVerilog (default: the
        format's name).

    Examples
    --------
    >>> import mxnum.emit
    >>> text = mxnum.emit.reference_model("c", "mxfp4_e2m1", rounding="rtz")
    >>> [line for line in text.splitlines() if "quantize_block(" in line][0]
    'static inline uint8_t mxfp4_e2m1_quantize_block(const float *x, int n, uint8_t *codes)'
    """
    from mxnum.emit.model import model_of, settings_of

    errors.choose("language", language, tuple(LANGUAGES))
    settings = settings_of(format, source, target, rounding, scale_rule, overflow, nonfinite, sr_bits)
    return _printed(language, model_of(settings, _prefix(settings.format.name, name)))


def matrix_unit_model(
    language: str,
    unit: str | MatrixUnit = "hopper_fp8",
    *,
    a: str | None = None,
    b: str | None = None,
    name: str | None = None,
) -> str:
    """Return a reference model of a matrix unit's fused sum, as the text of a self-contained file.

    The model has the function `fused_sum`. For each product, `fused_sum` takes the codes of both
    factors. It also takes the bits of an addend, and returns the bits of the result. If the unit
    adds the addend after the sums, the model also has the function `add`, which adds two numbers of
    the accumulator's type.

    Parameters
    ----------
    language
        As in `reference_model`.
    unit
        A matrix unit, or its name. The unit's terms must be single products without scales.
    a, b
        The formats of the operands. By default, `a` is the unit's first format, and `b` equals `a`.
    name
        The prefix of all names in C, and the name of the package in SystemVerilog (default: the
        unit's name).

    Examples
    --------
    >>> import mxnum.emit
    >>> text = mxnum.emit.matrix_unit_model("c", "hopper_fp8")
    >>> [line.split("(")[0] for line in text.splitlines() if "_fused_sum(" in line]
    ['static inline uint32_t hopper_fp8_fused_sum']
    """
    from mxnum import units
    from mxnum.emit.matrix_unit import sum_model_of

    return _printed(language, sum_model_of(unit, a, b, _prefix(units.get(unit).name, name)))


def _prefix(default: str, name: str | None) -> str:
    """Return the prefix of all names; raise ValueError if `name` cannot be a prefix."""
    prefix = re.sub(r"\W+", "_", default) if name is None else name
    errors.require(
        bool(re.fullmatch(r"[A-Za-z]\w*", prefix)),
        "name",
        "a name of letters, digits and _ that begins with a letter",
        name,
    )
    return prefix


def _printed(language: str, model: Any) -> str:
    from importlib import import_module

    module, printer = LANGUAGES[errors.choose("language", language, tuple(LANGUAGES))]
    made: Any = getattr(import_module(f"mxnum.emit.{module}"), printer)
    text: str = made(model).text()
    return text


def explorer(
    x: Any = None,
    format: str | MXFormat = "mxfp4_e2m1",
    *,
    rounding: str | Rounding = "rne",
    scale_rule: str | ScaleRule | FloatScaleRule | None = None,
    overflow: str | Overflow = "saturate",
    nonfinite: str | Nonfinite = "block",
) -> str:
    """Return an HTML page that shows how numbers and blocks are quantized, bit by bit.

    The page needs no other file and no network. Readers of the page can choose the format and the
    modes, and change the numbers. The arguments set what the page shows when it opens.

    Parameters
    ----------
    x
        The numbers, as float32: at most one block of `format` (default: an example).
    format
        An MX format. The page offers this format and all named formats.
    rounding, scale_rule, overflow, nonfinite
        The modes, as in `mxnum.quantize`.

    Examples
    --------
    >>> import mxnum.emit
    >>> page = mxnum.emit.explorer([0.1, -3, 500], "mxfp8_e4m3", scale_rule="rceil")
    >>> "<!DOCTYPE html>" in page
    True
    """
    from mxnum.emit.page import explorer_page, first_state

    fmt, start = first_state(x, format, rounding, scale_rule, overflow, nonfinite)
    return explorer_page(start, fmt)
