"""Watch an emulated model: record what rounding does to each operand of each layer.

Operations pass each operand and its rounded values to the `Watch` of the module, so that watching
also works in compiled models.
"""

from __future__ import annotations

import math
import textwrap
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import nn

import mxnum as mx
from mxnum import errors
from mxnum.output.text_table import text_table
from mxnum.recipe import Operand, Recipe
from mxnum.torch.attention import OPERANDS
from mxnum.torch.emulate import emulation_of, step_kept
from mxnum.torch.functions import How
from mxnum.torch.modules import Site, sites_of
from mxnum.torch.multihead import PROJECTIONS
from mxnum.torch.operands import BETA, GAMMA, GRADIENT, LEFT, RIGHT, Key, is_beyond_max, prepared, watching
from mxnum.torch.randomness import NOT_BEGUN, exporting, recomputing

Tensor = Any
NAMES = {
    LEFT: "activations", LEFT + 1: "activations_backward", RIGHT: "weights", RIGHT + 1: "weights_backward",
    GRADIENT: "gradients", GRADIENT + 1: "gradients_for_weights", GAMMA: "gamma", BETA: "beta",
}  # fmt: skip
_FORWARD = (LEFT, RIGHT, GAMMA, BETA)
_PARAMETERS = (RIGHT, RIGHT + 1, GAMMA, BETA)
#: QUANTITIES are the names of what is measured for each operand, and BIASES are the names of what
#: `compare` measures for the gradient of each parameter.
QUANTITIES = ("rmse", "beyond_max", "underflow", "scale_least", "scale_greatest", "scales_at_ends", "flips")
BIASES = ("zeta", "cosine")
#: The columns of `Watch.table`.
SHOWN = ("rmse", "beyond max", "underflow", "scales", "scales at ends", "flips")
#: The meaning of each column of `Watch.table`.
LEGEND = {
    "rmse": "root of (sum of squared errors / sum of squared values)",
    "beyond max": "share of elements whose magnitude, before rounding, exceeds the scale times the format's maximum",
    "underflow": "share of elements that became zero",
    "scales": "least and greatest scale code (or scale, if scales have no 8-bit codes)",
    "scales at ends": "number of blocks whose scale code is the least or the greatest possible",
    "flips": "share of codes that changed since the last watched step",
    "zeta": "|g~ - g| / |g|, where g is float32's gradient and g~ the emulated one",
    "cosine": "cosine of the angle between g~ and g",
}
#: The number of operands that `Watch.table` shows, unless `full` is True.
WORST = 10
#: The largest width of `Watch.table`, in characters.
WIDTH = 80


class Watch:
    """The observations of a model: a row for each operand of each module at each watched step."""

    def __init__(self, model: nn.Module, is_step: Callable[[int], bool]):
        self._model, self._is_step = weakref.ref(model), is_step
        self._rows: list[dict[str, Any]] = []
        self._codes: dict[tuple[str, str], Tensor] = {}
        self._count: Counter[tuple[str, int, str]] = Counter()
        self._numbers: list[int] = []
        self._written, self._is_quiet = 0, False

    def rows(self) -> list[dict[str, Any]]:
        """Return the observations as a list of dictionaries, which ``pandas.DataFrame`` accepts.

        rmse
            Relative error: the root of (sum of squared errors / sum of squared values).
        beyond_max, underflow
            `beyond_max` is the share of elements whose magnitude, before rounding, exceeds the
            scale times the format's largest element. `underflow` is the share of elements that
            became zero.
        scale_least, scale_greatest, scales_at_ends
            The least and the greatest scale code, and the number of blocks whose code is the least
            or the greatest possible. If scales have no 8-bit codes, `scale_least` and
            `scale_greatest` are values.
        flips
            The share of a parameter's codes that changed since the last watched step.
        zeta, cosine
            Results of `compare`. g is a parameter's gradient in float32, and g~ is the gradient in
            the emulated model. zeta is ||g~ - g|| / ||g||, and cosine is the cosine of the angle
            between g~ and g.
        """
        return [dict(row) for row in self._rows]

    def table(self, step: int | None = None, *, full: bool = False) -> str:
        """Return a table of the ten operands with the largest error at a step, with a legend.

        With `full`, the table has all operands, in the order of the rows. By default `step` is the
        last watched step. The name of a module stands above its operands. The column "scales" shows
        the range from `scale_least` to `scale_greatest`. If `compare` ran at this step, a second
        table follows. The second table shows `zeta` and `cosine` of the whole model, and of the ten
        parameters with the largest `zeta`.
        """
        steps = [row["step"] for row in self._rows]
        if not steps:
            return "Nothing has been watched yet."
        wanted = max(steps) if step is None else step
        errors.require(wanted in steps, "step", f"one of the watched steps {sorted(set(steps))}", step)
        rows = [row for row in self._rows if row["step"] == wanted]
        parts = [f"Step {wanted}"]
        for quantity, names in (("rmse", SHOWN), ("zeta", BIASES)):
            of_kind = [row for row in rows if quantity in row]
            shown = of_kind if full else _worst(of_kind, quantity)
            if len(shown) < len(of_kind):
                parts.append(f"{len(shown)} of {len(of_kind)} rows, chosen by {quantity} (full=True shows all)")
            parts += _table(names, shown)
        return "\n\n".join(parts)

    def write(self, writer: Any, tag: str = "mxnum") -> None:
        """Write all observations since the last call to a TensorBoard writer, by `add_scalar`.

        A tag has the form "mxnum_rmse/0.weights", so that TensorBoard groups the tags by quantity.
        """
        new, self._written = self._rows[self._written :], len(self._rows)
        for row in new:
            operand = f"{row['module']}.{row['operand']}".strip(".").replace(" ", "_")
            for name in (*QUANTITIES, *BIASES):
                if name in row:
                    writer.add_scalar(f"{tag}_{name}/{operand}", row[name], row["step"])

    def figure(self, quantity: str = "rmse", operand: str = "weights") -> Any:
        """Return a matplotlib figure of a quantity for each module and step (extra ``plots``)."""
        from mxnum.torch.figure import layers_by_steps

        errors.choose("quantity", quantity, (*QUANTITIES, *BIASES))
        chosen = [row for row in self._rows if row["operand"] == operand and quantity in row]
        seen = tuple(dict.fromkeys(row["operand"] for row in self._rows))
        errors.require(bool(chosen), "operand", f"one of {list(seen)} for which {quantity!r} was recorded", operand)
        return layers_by_steps(chosen, quantity, operand)

    def compare(self, model: nn.Module, loss: Callable[[], Tensor]) -> dict[str, Any]:
        """Compare the gradients of the emulated model with those of float32, on one batch.

        `loss` runs the model and returns the loss. `compare` calls `loss` twice. The parameters'
        `grad`, buffers (such as batch norm's), the step and torch's random state do not change. The
        result is the row for the gradient of the whole model. The operand in this row is
        "gradient".
        """
        emulation = emulation_of(model)
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        errors.require(bool(named), "model", "one with parameters that require a gradient", "one without")
        sites = sites_of(emulation.modules).values()
        hows = [site.how for site in sites]
        self._is_quiet = True
        try:
            with step_kept(emulation):
                reduced = _gradients(model, loss, named)
            for site in sites:
                site.how = How(Recipe())  # sums by torch, because sums by blocks need operands in an MX format
            with step_kept(emulation):
                exact = _gradients(model, loss, named)
        finally:
            self._is_quiet = False
            for site, how in zip(sites, hows, strict=True):
                site.how = how
        for (name, _), g, h in zip(named, reduced, exact, strict=True):
            module, _, parameter = name.rpartition(".")
            self._rows.append({"step": emulation.step, "module": module, "operand": parameter, **_angle(g, h)})
        whole = _angle(torch.cat([g.flatten() for g in reduced]), torch.cat([g.flatten() for g in exact]))
        row = {"step": emulation.step, "module": "", "operand": "gradient", **whole}
        self._rows.append(row)
        return dict(row)

    def stop(self) -> None:
        """Stop watching the model. The observed rows are kept."""
        for number in self._numbers:
            watching.pop(number, None)
        self._codes.clear()

    def _follow(self, site: Site) -> None:
        def see(slot: int, operand: Operand, axis: int, x: Tensor, value: Tensor, key: Key) -> None:
            step, model = key.step, self._model()
            if model is None or self._is_quiet or not model.training:
                return
            if step == 0 and not (recomputing() or exporting()):
                raise RuntimeError(f"Module {site.name!r} is watched in training, but {NOT_BEGUN}")
            if not self._is_step(step):
                return
            again = slot in _FORWARD and recomputing()
            if operand.is_mx and not again and x.numel():
                is_parameter = slot in _PARAMETERS and not key.of_samples
                what = _called(slot, key, site.seed)
                self._see(site.name, step, what, is_parameter, operand, axis, x.detach(), value.detach())

        watching[site.number] = see
        self._numbers.append(site.number)

    def _see(
        self, name: str, step: int, what: str, is_parameter: bool, operand: Operand, axis: int, x: Tensor, value: Tensor
    ) -> None:
        self._count[name, step, what] += 1
        index = self._count[name, step, what]
        what += f" {index}" if index > 1 else ""
        row: dict[str, Any] = {"step": step, "module": name, "operand": what}
        wide, error = x.double(), value.double() - x.double()
        row["rmse"] = math.sqrt(error.square().sum() / wide.square().sum()) if wide.any() else 0.0
        fmt, keywords = prepared(operand, axis, x.ndim)
        q = mx.quantize(x, fmt, **{**keywords, "rounding": "rne"})
        row["beyond_max"] = float(is_beyond_max(x, q).double().mean())
        row["underflow"] = float(((value == 0) & (x != 0)).double().mean())
        scales = cast(Tensor, q.scales)
        row["scale_least"], row["scale_greatest"] = scales.min().item(), scales.max().item()
        if scales.dtype == torch.uint8:
            row["scales_at_ends"] = int(((scales == 0) | (scales == fmt.scale.max_code)).sum())
        if is_parameter:
            before, self._codes[name, what] = self._codes.get((name, what)), q.codes
            if before is not None and before.shape == q.codes.shape:
                row["flips"] = float((before != q.codes).double().mean())
        self._rows.append(row)


def watch(model: nn.Module, every: int = 1, *, steps: Iterable[int] | None = None) -> Watch:
    """Watch all operands of an emulated model at chosen training steps.

    The watched steps are the multiples of `every`, or the steps in `steps` if given. Watching a
    step takes about as long as the rounding in the step. Steps that are not watched take no extra
    time. If a module runs several times in a step, its operands are numbered: "activations",
    "activations 2". The operands of attention are called "queries", "keys", "probabilities" and
    "values". The weights of the last projection of a MultiheadAttention are called "weights of
    out_proj".
    """
    emulation = emulation_of(model)
    every = errors.positive_integer("every", every)
    errors.require_type(steps is None or isinstance(steps, Iterable), "steps", "a list of steps", steps)
    if steps is not None and every != 1:
        raise errors.exclusive("every", "steps")
    chosen = None if steps is None else frozenset(errors.integer("steps", step, 0, 1 << 48) for step in steps)
    made = Watch(model, (lambda step: step % every == 0) if chosen is None else chosen.__contains__)
    for site in sites_of(emulation.modules).values():
        if site.number in watching:
            raise ValueError("Argument 'model' must not be watched already: call stop() on the other watch first.")
        made._follow(site)
    return made


def _called(slot: int, key: Key, seed: int) -> str:
    """Return the name of an operand of the module whose seed is `seed`.

    A module may compute several matrix products, each with its own seed. The seed in the key
    therefore identifies the product to which the operand belongs.
    """
    which = key.seed ^ seed
    if not key.of_samples:
        return NAMES[slot] + (f" of {PROJECTIONS[which]}" if which in PROJECTIONS else "")
    left, right = OPERANDS[which]
    if slot in (GRADIENT, GRADIENT + 1):
        return f"gradients_for_{left if slot == GRADIENT else right}"
    return (left if slot in (LEFT, LEFT + 1) else right) + "_backward" * (slot in (LEFT + 1, RIGHT + 1))


def _gradients(model: nn.Module, loss: Callable[[], Tensor], named: list[tuple[str, Tensor]]) -> list[Tensor]:
    """Return the gradients of the loss: zero for parameters on which the loss does not depend.

    torch's random state and the model's buffers are restored.
    """
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with torch.random.fork_rng(), torch.enable_grad():
            value = loss()
            is_number = isinstance(value, torch.Tensor) and value.numel() == 1
            errors.require_type(is_number, "loss", "a function that returns a tensor of one number", value)
            made = torch.autograd.grad(value, [p for _, p in named], allow_unused=True)
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
    return [(torch.zeros_like(p) if g is None else g).double() for (_, p), g in zip(named, made, strict=True)]


def _angle(reduced: Tensor, exact: Tensor) -> dict[str, float]:
    norm, other = float(exact.norm()), float(reduced.norm())
    if norm == 0 or other == 0:
        return {"zeta": math.nan if norm == 0 else 1.0, "cosine": math.nan}
    cosine = float((reduced * exact).sum()) / (norm * other)
    return {"zeta": float((reduced - exact).norm()) / norm, "cosine": cosine}


def _worst(rows: list[dict[str, Any]], quantity: str) -> list[dict[str, Any]]:
    """Return the row of the whole model, and then the rows with the largest values of `quantity`.

    A NaN counts as the largest value.
    """
    whole = [row for row in rows if not row["module"] and row["operand"] == "gradient"]
    others = [row for row in rows if row not in whole]
    others.sort(key=lambda row: math.inf if math.isnan(row[quantity]) else row[quantity], reverse=True)
    return whole + others[:WORST]


def _table(names: tuple[str, ...], rows: list[dict[str, Any]]) -> list[str]:
    """Return a table of the columns `names`, with the rows of a module together, and a legend."""
    lines: list[list[str]] = []
    for module in dict.fromkeys(row["module"] for row in rows):
        lines.append([module or "(the whole model)"] + [""] * len(names))
        for row in rows:
            if row["module"] == module:
                lines.append([f"  {row['operand']}", *(_cell(name, row) for name in names)])
    used = [0, *(i for i in range(1, len(names) + 1) if any(line[i] for line in lines))]
    columns = ["", *names]
    if not lines:
        return []
    legend = [textwrap.fill(f"{columns[i]}: {LEGEND[columns[i]]}", WIDTH, subsequent_indent="  ") for i in used[1:]]
    table = text_table([columns[i] for i in used], [[line[i] for i in used] for line in lines], WIDTH)
    return [table, "\n".join(legend)]


def _cell(name: str, row: dict[str, Any]) -> str:
    if name == "scales":
        return f"{row['scale_least']:.3g} to {row['scale_greatest']:.3g}"
    value = row.get(name.replace(" ", "_"))
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
