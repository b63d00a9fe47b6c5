"""Train, read and show the runs of studies in which language models are trained."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.analysis import measure
from mxnum.lab import storage
from mxnum.lab.language_model.decoder import Decoder, gradient_of_logits, operands_at_the_end, train
from mxnum.lab.language_model.setting import Setting
from mxnum.lab.language_model.sources import Markov, source_of
from mxnum.lab.mlp.machine import check as check_machine
from mxnum.lab.studies import report
from mxnum.lab.studies.statistics import mean_interval, sign_flip
from mxnum.lab.studies.study import Model, Study
from mxnum.lab.studies.sweep import Task, telling
from mxnum.lab.theory import LogitGradientBias, logit_gradient_bias, logit_rest, sampled_logit_rest
from mxnum.output.text_table import markdown_table
from mxnum.recipe import Operand

#: The block shapes whose errors are compared. A block of sixteen elements is part of a row (a token
#: or a row of weights), part of a column, or a square tile.
ORGANISATIONS = {"row": (1, 16), "column": (16, 1), "tile": (4, 4)}
#: Losses at rest (with the logits in equilibrium) are simulated only if the control's loss exceeds
#: the entropy by less than this many nats. A control with a larger excess has learnt nothing.
MOST_NOISE = 10.0


class _LanguageModel(Model):
    base, key = Setting(), "setting"
    first_seed, measure_every = 1, 50

    def check(self, study: Study, stack: int, machine: str, here: bool, keep_operands: bool) -> None:
        errors.require(machine in ("cpu", "cuda"), "machine", "'cpu' or 'cuda' for language models", machine)
        if here and machine == "cuda":
            check_machine(machine)
        errors.require(stack == 1, "stack", "1 for language models, which train one seed at a time", stack)
        for text in sorted({setting.text for setting in study.arms.values() if setting.source == "text"}):
            errors.require(Path(text).is_file(), "text", "a file that exists", text)

    def train(self, task: Task, progress: Any) -> None:
        (seed,) = task.seeds
        tell = telling(task.label, progress)
        run = train(
            task.configuration, seed, measure_every=task.measure_every,
            checkpoint=task.directory / f"checkpoint-{seed}.pt", report=lambda step, loss: tell(step),
            device=task.machine,
        )  # fmt: skip
        if task.keeps_operands:
            storage.write_arrays(task.directory / f"seed-{seed}-operands.npz", operands_at_the_end(run))
        run.save(task.directory)

    def summary(self, configuration: Setting, stored: dict[str, Any], arrays: dict[str, Any], path: Path) -> Any:
        kept = report.summary(stored, arrays, least=stored["entropy"][0] if stored["entropy"] else 0.0)
        measured = {
            key.removeprefix("measured_"): [float(f"{v:.4g}") for v in values.reshape(len(values), -1).mean(-1)]
            for key, values in arrays.items()
            if key.startswith("measured_") and key != "measured_at"
        }
        operand, predicted = gradient_of_logits(configuration), None
        if operand.is_mx and _has_derivation(operand) and "measured_probability" in arrays:
            biases = predicted_biases(configuration, arrays["measured_probability"])
            predicted = [float(f"{v:.4g}") for v in biases]
        operands = path.with_name(f"{path.stem}-operands.npz")
        if operands.exists():
            kept["organisations"] = organisation_errors(storage.read_arrays(operands))
        own = {"evaluation": stored["evaluation"], "entropy": stored["entropy"]}
        return kept | own | {"measured": measured, "predicted_bias": predicted}

    def finish(self, study: Study, table: dict[str, Any]) -> None:
        table |= {"controls": dict(study.controls), "named": dict(study.named)}
        for name, arm in table["arms"].items():
            setting, control = study.arms[name], table["arms"].get(study.control_of(name))
            arm["at_rest"] = predicted_gap(setting)
            rests = setting.centred and arm["at_rest"] is not None and gradient_of_logits(setting).is_mx
            if rests and control is not None and excess_of(control) < MOST_NOISE:  # False for NaN
                arm["sampled_rest"] = sampled_gap(setting, excess_of(control))

    def files(self, table: dict[str, Any]) -> dict[str, str]:
        return {"md": page(table), "csv": losses_text(table)}


MODEL = _LanguageModel()


def organisation_errors(operands: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the mean E2M1 error (scale rule 'even') for each kind of operand and block shape."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, x in operands.items():
        of_kind = found.setdefault(name.split("/")[0], {each: [] for each in ORGANISATIONS})
        for each, block in ORGANISATIONS.items():
            statistics = measure(x, "mxfp4_e2m1", scale_rule="even", block_shape=block)
            of_kind[each].append(float(statistics.normalized_rmse))
    return {
        kind: {each: float(f"{np.mean(values):.4g}") for each, values in errors_.items()}
        for kind, errors_ in found.items()
    }


def predicted_biases(setting: Setting, probabilities: Any) -> list[float]:
    """Return the predicted bias of the targets' gradient components at each evaluation."""
    bias = _bias(setting, "rne")
    # NaN means no prediction: losses are NaN, or the model gives every target the probability 1.
    return [bias.shrinking(each).bias if each.min() < 1 else math.nan for each in probabilities]


def predicted_gap(setting: Setting) -> float | None:
    """Return the excess loss at rest that `logit_rest` predicts, or None if it cannot predict one.

    A prediction needs a Markov source, no label smoothing, no z-loss, and a rounding whose bias the
    library can derive. Both products that use the gradient of the logits must round the gradient in
    the same way. If the gradient is not in MX, the predicted excess is 0.
    """
    operand = gradient_of_logits(setting)
    if setting.source != "markov" or setting.label_smoothing or setting.z_loss or not _has_derivation(operand):
        return None
    if setting.where in ("all", "last") and setting.recipe.gradients_for_weights not in (None, operand):
        return None
    if not operand.is_mx:
        return 0.0
    return logit_rest(_probabilities(setting), _bias(setting, operand.rounding)).excess


def _has_derivation(operand: Operand) -> bool:
    """Return True if `logit_gradient_bias` can derive the bias of the operand's rounding.

    `logit_gradient_bias` does not support scales of more than 16 bits.
    """
    return operand.rounding in ("rne", "sr") and not (operand.is_mx and operand.mx_format.scale.bits > 16)


def _bias(setting: Setting, rounding: str) -> LogitGradientBias:
    """Return the bias that `rounding` causes in the gradient of the logits of a setting."""
    operand = gradient_of_logits(setting)
    how: dict[str, Any] = {"scale_rule": operand.scale_rule, "rounding": rounding, "block_size": operand.block_size}
    return logit_gradient_bias(operand.mx_format, setting.tokens, setting.factor, **how)


def sampled_gap(setting: Setting, noise: float) -> float:
    """Return the excess loss at rest from a simulation that rounds gradients of random contexts.

    The simulation assumes that the logits have no common drift. It also assumes that the loss
    without rounding exceeds the entropy by `noise` nats.
    """
    operand, rows = gradient_of_logits(setting), max(1, min(512, 2**18 // setting.vocabulary))
    found = sampled_logit_rest(
        _probabilities(setting), operand.mx_format, setting.tokens, setting.factor, noise=max(noise, 0.0),
        scale_rule=operand.scale_rule, rounding=operand.rounding, block_size=operand.block_size, rows=rows,
    )  # fmt: skip
    return float(f"{found.excess:.4g}")


def excess_of(arm: Mapping[str, Any]) -> float:
    """Return the mean final loss of an arm minus the entropy of its source."""
    return float(np.mean([run["evaluation"] - run["entropy"][1] for run in arm["runs"]]))


def _probabilities(setting: Setting) -> Any:
    source = source_of(setting)
    assert isinstance(source, Markov)
    return np.append(source.probabilities, np.zeros(source.vocabulary - len(source.probabilities)))


HEADINGS = (
    "arm", "seeds", "excursions", "loss", "above the entropy", "gap to control", "95 %", "p", "gap predicted at rest",
    "by kernels", "bias", "bias predicted", "beyond max", "sum", "common weight", "error",
)  # fmt: skip
#: The note below the table.
NOTE = (
    "*Loss* is the final loss on fresh batches in nats, a mean over seeds. A *gap to control* compares runs of the "
    "same seed. *Excursions* counts the runs whose loss above the entropy rose to twenty times its least running "
    "median, and their outcomes. *Bias* is the relative change of the targets' components of the gradient of the "
    "logits. *Sum* is the mean over tokens of the sum of a token's rounded components of this gradient, divided by "
    "the mean magnitude of the targets' components. Bias and sum are means over evaluations. *Common weight* is the "
    "norm of the last layer's mean row, divided by the root mean square of the norms of the rows' deviations from it, "
    "at the last evaluation. *Error* is the relative root mean square error of the rounded operands, over layers, "
    "operands and evaluations. *Gap predicted at rest* is the loss above the entropy that `theory.logit_rest` "
    "predicts for the Markov source of the data; 0 if the gradient of the logits is not rounded. *By kernels* is the "
    "gap at rest that `theory.sampled_logit_rest` simulates with mxnum's kernels; its argument `noise` is the "
    "control's loss above the entropy. *Bias predicted* is the bias that `theory.logit_gradient_bias` predicts from "
    "the probabilities that the model gives the targets, a mean over evaluations."
)


def rows(table: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return one row for each arm, with the mean gap to the control and an exact paired test."""
    made = []
    for name, arm in table["arms"].items():
        runs = {run["seed"]: run for run in arm["runs"]}
        control = table["controls"].get(name, table["control"])
        others = {run["seed"]: run for run in table["arms"].get(control, {"runs": []})["runs"]}
        gaps = [run["evaluation"] - others[seed]["evaluation"] for seed, run in runs.items() if seed in others]
        interval = mean_interval(gaps)
        entropy = next(iter(runs.values()))["entropy"]
        loss = float(np.mean([run["evaluation"] for run in runs.values()]))
        rest = arm["at_rest"]
        strayed = any(course.counted for course in report.courses(table, name))
        cells = [name, str(len(runs)), report.outcomes_text(table, name) if strayed else "-", f"{loss:.4f}"]
        cells += ["-" if entropy is None else f"{loss - entropy[1]:.4f}"]
        is_control = name in (table["control"], *table["controls"].values())
        cells += ["" if is_control or not gaps else f"{np.mean(gaps):+.4f}"]
        cells += ["" if is_control or interval is None else f"{interval[1]:+.4f} to {interval[2]:+.4f}"]
        cells += ["" if is_control or not gaps or np.isnan(gaps).any() else f"{sign_flip(gaps):.3g}"]
        sampled = arm.get("sampled_rest")
        cells += ["-" if rest is None else f"{rest:.4f}", "-" if sampled is None else f"{sampled:.4f}"]
        biases = [np.mean(run["predicted_bias"]) for run in runs.values() if run["predicted_bias"]]
        cells += [
            _mean(runs, "gradient_bias", "{:+.1%}"),
            f"{np.mean(biases):+.1%}".replace("%", " %") if biases else "-",
        ]
        cells += [_mean(runs, "beyond_max", "{:.0%}"), _mean(runs, "gradient_sum", "{:+.3f}")]
        last = [run["measured"]["common_weight"][-1] for run in runs.values() if "common_weight" in run["measured"]]
        made.append((*cells, f"{np.mean(last):.2f}" if last else "-", _mean(runs, "error", "{:.2%}")))
    return made


def _mean(runs: dict[int, Any], name: str, how: str) -> str:
    """Return the mean of a quantity over evaluations and seeds, as text."""
    found = [np.mean(run["measured"][name]) for run in runs.values() if run["measured"].get(name)]
    return how.format(float(np.mean(found))).replace("%", " %") if found else "-"


def page(table: dict[str, Any]) -> str:
    """Return a page of Markdown: the question, the table and notes."""
    found = list(zip(HEADINGS, *rows(table), strict=True))
    columns = [column for column in found if set(column[1:]) - {"-", ""}]
    headings, *lines = zip(*columns, strict=True)
    parts = [f"# {table['study']}", table["question"], markdown_table(headings, lines), NOTE, report.made_with(table)]
    return "\n\n".join(part for part in parts if part) + "\n"


def losses_text(table: dict[str, Any]) -> str:
    """Return a CSV text for `mxnum lab fit`, with a line for each run.

    The number of parameters includes the embedding. Arms that differ only in their grid values get
    the same name, because one law is fitted to all these arms.
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(("arm", "seed", "parameters", "tokens", "loss"))
    for name, arm in table["arms"].items():
        setting = Setting.from_dict(arm["experiment"])
        parameters = sum(p.numel() for p in Decoder(setting, setting.vocabulary).parameters())
        for run in arm["runs"]:
            of = table["named"].get(name, name)
            writer.writerow((of, run["seed"], parameters, setting.tokens * setting.steps, run["evaluation"]))
    return lines.getvalue()
