"""Measure how long `mxnum.prove` takes to prove emitted models: ``python -m benchmarks.prove``.

The command prints a Markdown table with the seconds of processor time that reading and solving take
on one core. The time of yosys and clang is not included, because they are other processes.
`--formats` names formats, and `--language` is systemverilog or c. `--elements` measures proofs of
conversions from one element format to another, in SystemVerilog.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

from mxnum import Rounding, formats
from mxnum.conformance import prove
from mxnum.emit import reference_model

FORMATS = [name for name in formats.names() if formats.get(name).scale.power_of_two]
RULE = "rceil"
#: SystemVerilog text of the port for random bits, and of the argument that passes them to `encode`.
RANDOM = (", input [29:0] random", ", m::align_random({2'b0, random})")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--formats", nargs="+", default=FORMATS)
    parser.add_argument("--language", choices=("systemverilog", "c"), default="systemverilog")
    parser.add_argument("--elements", action="store_true")
    asked = parser.parse_args()
    if asked.elements:
        print_elements([name for name in asked.formats if not formats.get(name).element.integer])
        return
    titles = ["format", *(f"`encode`, {mode}" for mode in Rounding), "`decode`", f"`scale`, {RULE}"]
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for name in asked.formats:
        print(f"| {' | '.join([name, *cells(asked.language, name)])} |", flush=True)


def cells(language: str, name: str) -> Iterator[str]:
    """Yield the seconds of each proof for a format, or the verdict if the proof failed."""
    for mode in Rounding:
        yield measured(language, name, "encode", rounding=str(mode))
    yield measured(language, name, "decode")
    yield measured(language, name, "scale", scale_rule=RULE)


def measured(language: str, name: str, operation: str, **settings: Any) -> str:
    """Return the seconds that one proof takes, or the verdict if the proof failed."""
    function = {"encode": "m_encode", "decode": "m_decode", "scale": "m_shared_scale"}[operation]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / ("m.h" if language == "c" else "m.sv")
        text = reference_model(language, name, name="m", **settings)
        file.write_text(text if language == "c" else text + modules(settings.get("rounding") == "sr"))
        started = process_time()
        proof = prove(file, operation, name, function=function, **settings)
        return f"{process_time() - started:.1f}" if proof else proof.verdict


def print_elements(names: list[str]) -> None:
    """Print the seconds that each proof of a conversion between elements takes.

    Each proof covers all scales.
    """
    print(f"| conversion | {' | '.join(map(str, Rounding))} |\n|{'---|' * (len(Rounding) + 1)}")
    for source, target in itertools.permutations(names, 2):
        title = f"{formats.get(source).element.name} to {formats.get(target).element.name}"
        seconds = " | ".join(converted(source, target, str(mode)) for mode in Rounding)
        print(f"| {title} | {seconds} |", flush=True)


def converted(source: str, target: str, rounding: str) -> str:
    """Return the seconds that the proof of a conversion between elements takes.

    If the proof failed, return its verdict instead.
    """
    is_stochastic, element = rounding == "sr", formats.get(source).element
    port, argument = RANDOM if is_stochastic else ("", "")
    module = f"""
    module convert (input [{element.bits - 1}:0] x, input [7:0] scale{port}, output [31:0] code);
      assign code = m::encode(n::decode({{{32 - element.bits}'d0, x}}, 127), {{24'd0, scale}}{argument});
    endmodule
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.sv"
        decoder = reference_model("systemverilog", source, name="n")
        file.write_text(decoder + reference_model("systemverilog", target, name="m", rounding=rounding) + module)
        started = process_time()
        settings: dict[str, Any] = {"source": element.name, "rounding": rounding, "accept": ["nan_code"]}
        proof = prove(file, "encode", target, function="convert", **settings)
        return f"{process_time() - started:.1f}" if proof else proof.verdict


def modules(is_stochastic: bool) -> str:
    """Return Verilog modules that call the functions of an emitted package."""
    port, argument = RANDOM if is_stochastic else ("", "")
    return f"""
    module m_encode (input [31:0] x, input [7:0] scale{port}, output [31:0] code);
      assign code = m::encode($signed(x), {{24'd0, scale}}{argument});
    endmodule
    module m_decode (input [7:0] code, input [7:0] scale, output [31:0] value);
      assign value = m::decode({{24'd0, code}}, {{24'd0, scale}});
    endmodule
    module m_shared_scale (input [31:0] amax, output [31:0] scale);
      assign scale = m::shared_scale($signed(amax));
    endmodule
    """


if __name__ == "__main__":
    main()
