"""Time a step of emulated training in PyTorch as a multiple of a float32 step."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.questions import Case, Cells, Session
from benchmarks.record import Measurement, Table

TITLE = "What does emulation add to a training step in PyTorch?"
TEXT = """The baseline is the same step in float32: forward, loss and gradients, without the optimizer. Each
case is measured in alternation with the baseline, with the default number of threads of torch and numba. *Left alone*
is a model that was given to `emulate` with a filter that no module passes; *block* is `accumulate="block"` and
*amx* is `accumulate="amx"`. microxcaling (`round="even"`, no bfloat16) is run if `MXNUM_MICROXCALING` names a
checkout. *Overhead* is the time that microxcaling adds to the float32 step divided by the time that mxnum adds."""

Step = Callable[[], object]
_RECIPES = {
    "E4M3": "mxfp8_e4m3",
    "E2M1": "mxfp4_e2m1",
    "E4M3, gradients sr": {"uniform": "mxfp8_e4m3", "gradients": {"format": "mxfp8_e4m3", "rounding": "sr"}},
}
_LIMITS = {
    ("linear", "E4M3"): 1.25, ("transformer", "E4M3"): 1.4,
    ("linear", "E2M1, block"): 1.0, ("transformer", "E2M1, block"): 1.1,
}  # fmt: skip
_ROWS = {"linear": "Linear 1024 × 4096, 2,048 tokens", "transformer": "transformer, d = 128, 4 layers, 2,048 tokens"}


def measure(session: Session) -> Cells:
    """Yield the cells: each model with each recipe."""
    table = Table("torch_step", "A training step", "× the step in float32")
    try:
        import torch
    except ModuleNotFoundError:
        yield table, Measurement("any", "E4M3", skipped="torch is not installed")
        return
    import mxnum as mx
    import mxnum.torch as mxt

    overheads = Table("torch_overhead", "Overhead beside microxcaling", "× ours")
    torch.manual_seed(session.seed)
    for name, make in {"linear": _linear, "transformer": _transformer}.items():
        plain, x = make(torch)
        baseline, row, ours = _step(plain, x), _ROWS[name], None
        for column, given in _RECIPES.items():
            model = copy.deepcopy(plain)
            mxt.emulate(model, mx.Recipe.of(given))
            case = Case(row, column, _step(model, x), limit=_LIMITS.get((name, column)))
            for cell in session.compare(table, baseline, case):
                ours = cell[1].median if column == "E4M3" else ours
                yield cell
        mxt.emulate(model := copy.deepcopy(plain), "mxfp4_e2m1", accumulate="block")
        column = "E2M1, block"
        yield from session.compare(table, baseline, Case(row, column, _step(model, x), limit=_LIMITS[name, column]))
        try:
            mxt.emulate(model := copy.deepcopy(plain), "mxfp8_e4m3", accumulate="amx")
            case = Case(row, "E4M3, amx", _step(model, x))
        except ValueError as problem:
            case = Case(row, "E4M3, amx", None, skipped=str(problem))
        yield from session.compare(table, baseline, case)
        model = copy.deepcopy(plain)
        mxt.emulate(model, "mxfp8_e4m3", filter=lambda name, module: False)
        yield from session.compare(table, baseline, Case(row, "left alone", _step(model, x), limit=1.05))
        theirs = _microxcaling(torch, x) if name == "linear" else None
        skipped = "MXNUM_MICROXCALING is not set" if name == "linear" else "microxcaling has no modules for this model"
        for cell in session.compare(table, baseline, Case(row, "microxcaling", theirs, skipped=skipped)):
            yield cell
            added = cell[1].median
            if added is not None and ours is not None:
                quotient = (added - 1) / max(ours - 1, 0.01)
                yield overheads, Measurement(row, "microxcaling", quotient, quotient, quotient, 1)


def _step(model: Any, x: Any) -> Step:
    def run() -> object:
        model.zero_grad()
        x.grad = None
        model(x).square().mean().backward()
        return model

    return run


def _linear(torch: Any) -> tuple[Any, Any]:
    return torch.nn.Linear(1024, 4096), torch.randn(2048, 1024, requires_grad=True)


def _transformer(torch: Any) -> tuple[Any, Any]:
    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    return model, torch.randn(32, 64, 128, requires_grad=True)


def _microxcaling(torch: Any, x: Any) -> Step | None:
    path = os.environ.get("MXNUM_MICROXCALING")
    if not path:
        return None
    sys.path.insert(0, path)
    import mx as theirs  # type: ignore[import-not-found, unused-ignore]

    sys.path.remove(path)
    specs = theirs.finalize_mx_specs(
        {
            "scale_bits": 8, "w_elem_format": "fp8_e4m3", "a_elem_format": "fp8_e4m3", "block_size": 32, "bfloat": 0,
            "round": "even", "custom_cuda": False,
        }
    )  # fmt: skip
    return _step(theirs.Linear(1024, 4096, mx_specs=specs), x)
