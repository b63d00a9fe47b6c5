"""Reference models in other languages, written from the definition.

`reference_model` writes one file that needs nothing else: a C header, SystemVerilog functions, a
JavaScript module or plain Python. ``mxnum emit`` is the command. `explorer` writes a page for
browsers; ``mxnum explain --html`` is its command.
"""

from __future__ import annotations

import re
from typing import Any

from mxnum import errors
from mxnum.formats import MXFormat
from mxnum.modes import FloatScaleRule, Nonfinite, Overflow, Rounding, ScaleRule

__all__ = ["LANGUAGES", "explorer", "reference_model"]

#: The languages, and the module and the class of the printer of each.
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
    """Return the text of a reference model of a format: a file that needs no other.

    The model has the functions `encode`, `decode` and `shared_scale` for bit patterns,
    `quantize_block` and `dequantize_block` for blocks of numbers and, for a format with a tensor
    scale, `tensor_scale`. They are the functions of the definition, in integers.

    Parameters
    ----------
    language
        ``"c"`` (a C99 header, for C++ too), ``"systemverilog"`` (a package of functions),
        ``"javascript"`` (an ES module) or ``"python"``.
    format
        An MX format.
    source, target
        The float type that is quantized, and the one that `decode` gives.
    rounding, scale_rule, overflow, nonfinite, sr_bits
        The modes, as in `mxnum.quantize`. Rules that try several scales have no model.
    name
        What names begin with in C, and the package in SystemVerilog (default: the format's name).

    Examples
    --------
    >>> import mxnum.emit
    >>> text = mxnum.emit.reference_model("c", "mxfp4_e2m1", rounding="rtz")
    >>> [line for line in text.splitlines() if "quantize_block(" in line][0]
    'static inline uint8_t mxfp4_e2m1_quantize_block(const float *x, int n, uint8_t *codes)'
    """
    from importlib import import_module

    from mxnum.emit.model import model_of, settings_of

    module, printer = LANGUAGES[errors.choose("language", language, tuple(LANGUAGES))]
    settings = settings_of(format, source, target, rounding, scale_rule, overflow, nonfinite, sr_bits)
    prefix = re.sub(r"\W+", "_", settings.format.name) if name is None else name
    errors.require(bool(re.fullmatch(r"[A-Za-z]\w*", prefix)), "name", "a name of letters, digits and _", name)
    made: Any = getattr(import_module(f"mxnum.emit.{module}"), printer)
    text: str = made(model_of(settings, prefix)).text()
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
    """Return a page for browsers that shows how numbers and blocks are quantized, bit by bit.

    The page needs no other file and no network. Readers choose the format and the modes there, and
    change the numbers. The arguments say what it shows first.

    Parameters
    ----------
    x
        A block: at most as many float32 numbers as `format` has in one (default: an example).
    format
        An MX format. The page offers all named formats, and this one.
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
