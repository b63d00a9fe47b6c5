"""The command ``mxnum lab project``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mxnum.cli import options

if TYPE_CHECKING:
    from mxnum.lab.theory import Recipe, TransformerShape

#: The recipes for which the command computes the speed-up by default.
USUAL = ("fp8", "fp6", "fp4", "fp8/bf16", "fp6/fp4")


def project(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FORWARD[/BACKWARD]]...",
            help="Precision of the products in the forward pass, and in the backward pass: bf16, fp8, fp6 or "
            "fp4 (default: several recipes).",
        ),
    ] = None,
    shape: Annotated[
        str, typer.Option(help="llama-3-8b, llama-3-70b or llama-3-405b. Options such as --layers change the shape.")
    ] = "llama-3-405b",
    layers: Annotated[int | None, typer.Option(help="Number of layers.")] = None,
    width: Annotated[int | None, typer.Option(help="Width of the residual stream.")] = None,
    mlp_width: Annotated[int | None, typer.Option(help="Width within the MLP.")] = None,
    heads: Annotated[int | None, typer.Option(help="Number of attention heads.")] = None,
    kv_heads: Annotated[int | None, typer.Option(help="Number of heads for keys and values.")] = None,
    vocabulary: Annotated[int | None, typer.Option(help="Number of tokens in the vocabulary.")] = None,
    context: Annotated[int | None, typer.Option(help="Number of tokens in a sequence.")] = None,
    gated: Annotated[
        bool | None, typer.Option("--gated/--not-gated", help="Number of matrices in the MLP: three (gated) or two.")
    ] = None,
    attention: Annotated[
        str | None,
        typer.Option(
            help="Precision of attention's linear layers, if different from the MLPs': bf16, fp8, fp6 or fp4."
        ),
    ] = None,
    fp8: Annotated[
        str, typer.Option(metavar="RATE", help="Rate of fp8 products relative to bf16: a number, or a range LOW:HIGH.")
    ] = "2",
    fp6: Annotated[
        str, typer.Option(metavar="RATE", help="Rate of fp6 products relative to bf16: a number, or a range LOW:HIGH.")
    ] = "2",
    fp4: Annotated[
        str, typer.Option(metavar="RATE", help="Rate of fp4 products relative to bf16: a number, or a range LOW:HIGH.")
    ] = "4",
    other: Annotated[
        str, typer.Option(metavar="SHARE", help="Share of a bf16 step's time that is not spent on matrix products.")
    ] = "0.1",
    conversion: Annotated[
        str,
        typer.Option(
            metavar="SHARE", help="Time to quantize a product's operands, as a share of the product's time in bf16."
        ),
    ] = "0",
    as_json: options.AsJson = False,
) -> None:
    """Compute the speed-up of a training step if linear layers use fewer bits.

    The time of a step is the sum of the times of a transformer's matrix products, plus the times
    given by `--other` and `--conversion`. Each linear layer has three products: the forward
    product, the gradient of its input and the gradient of its weights. The time of a product is its
    number of FLOPs divided by the FLOP rate of its precision. If an option is given as LOW:HIGH,
    every result is an interval.

    Examples: `mxnum lab project`; `mxnum lab project fp4 --attention bf16`; `mxnum lab project fp8
    fp6/fp4 --shape llama-3-8b --fp8 1.6:2 --other 0.05:0.25`; `mxnum lab project fp8 --width 8192
    --layers 80 --json`.
    """
    from mxnum.cli.console import print_json, print_table
    from mxnum.lab import theory

    chosen = _shape(
        shape,
        {
            "layers": layers, "width": width, "mlp_width": mlp_width, "heads": heads, "kv_heads": kv_heads,
            "vocabulary": vocabulary, "context": context, "gated": gated,
        },
    )  # fmt: skip
    typed = {"fp8": fp8, "fp6": fp6, "fp4": fp4, "other": other, "conversion": conversion}
    ranges = {name: _range(name, text) for name, text in typed.items()}
    found = [(text, theory.project_range(chosen, _recipe(text, attention), ranges)) for text in recipes or list(USUAL)]
    shares = {"linear layers": chosen.linear_share, "MLPs among them": chosen.mlp_share}
    if as_json:
        projections = [{"recipe": text, "low": low, "high": high} for text, (low, high) in found]
        print_json({"shape": vars(chosen), "shares": shares, "parameters": ranges, "projections": projections})
        return
    title = (
        f"Speed-ups of a training step over bf16. Linear layers account for {chosen.linear_share:.1%} of the FLOPs. "
    )
    title += f"MLPs account for {chosen.mlp_share:.1%} of the linear layers' FLOPs."
    rows = [(text, f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}") for text, (low, high) in found]
    print_table(title, ("forward/backward", "speed-up"), rows)


def _shape(name: str, parts: dict[str, Any]) -> TransformerShape:
    from dataclasses import replace

    from mxnum import errors
    from mxnum.lab.theory.speed_up import SHAPES

    errors.choose("shape", name, tuple(SHAPES))
    return replace(SHAPES[name], **{part: value for part, value in parts.items() if value is not None})


def _recipe(text: str, attention: str | None) -> Recipe:
    from mxnum.lab.theory import Recipe
    from mxnum.lab.theory.speed_up import RATES

    parts = text.split("/")
    if len(parts) > 2 or not set(parts) <= set(RATES):
        raise ValueError(
            f"A recipe must be written FORWARD or FORWARD/BACKWARD, each one of {list(RATES)}, not {text!r}."
        )
    return Recipe.of(*parts, attention=attention)


def _range(name: str, text: str) -> tuple[float, float]:
    """Return the ends of an interval that is written as LOW:HIGH or as one number."""
    try:
        ends = [float(part) for part in text.split(":")]
    except ValueError:
        ends = []
    if len(ends) not in (1, 2) or ends[0] > ends[-1]:
        raise ValueError(f"Option --{name} must be a number, or two numbers written LOW:HIGH, not {text!r}.")
    return ends[0], ends[-1]
