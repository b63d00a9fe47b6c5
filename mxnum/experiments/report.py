"""From runs on disk to one small JSON file for a study, and from that to tables, verdicts and figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mxnum.experiments import storage
from mxnum.experiments.config import Experiment, experiment_from, to_dict
from mxnum.experiments.divergence import FACTOR, IN_A_ROW
from mxnum.experiments.excursions import excursions, final_loss
from mxnum.experiments.studies import Study
from mxnum.experiments.survival import Arm, fisher, kaplan_meier, log_rank, peto
from mxnum.experiments.sweep import arm_directory

#: Points of each stored loss curve and digits of each stored number: a study stays below a few hundred kilobytes.
CURVE_POINTS, DIGITS = 40, 4
_KEPT_MEASUREMENTS = (
    *("zeta", "zeta_gamma", "zeta_beta", "zeta_w1", "zeta_w2", "cosine"),
    *("gradient_norm", "gamma_in_last_bin", "gamma_error", "beta_error", "gamma_rms", "w1_rms", "w2_rms"),
)


def collect(study: Study, root: Path, arms: Mapping[str, Experiment] | None = None) -> dict[str, Any]:
    """What was run of a study, in one table; arms and seeds that are not there are left out."""
    table: dict[str, Any] = {"study": study.name, "question": study.question, "control": study.control, "arms": {}}
    if study.horizon is not None:
        table["horizon"] = study.horizon
    for name, experiment in (study.arms if arms is None else arms).items():
        runs = []
        paths = sorted(
            arm_directory(root / study.setting, name).glob("seed-*.json"), key=lambda p: int(re.sub(r"\D", "", p.stem))
        )
        for path in paths[: study.seeds]:
            stored = read_run(path, name, experiment)
            runs.append(_summary(stored, storage.read_arrays(path.with_suffix(".npz"))))
            table["environment"] = stored["environment"]
        if runs:
            table["arms"][name] = {"experiment": to_dict(experiment), "runs": runs}
    if not table["arms"]:
        raise ValueError(f"Folder {str(root / study.setting)!r} has no run of the study {study.name!r}.")
    if study.control not in table["arms"]:
        table["control"] = next(iter(table["arms"]))
    return table


def read_run(path: Path, arm: str, experiment: Experiment) -> dict[str, Any]:
    """The stored facts of a run, if it is one of this arm; else ValueError."""
    stored: dict[str, Any] = storage.read_json(path)
    found = experiment_from(stored["experiment"])
    if found != experiment:
        pairs = {f.name: (getattr(found, f.name), getattr(experiment, f.name)) for f in fields(Experiment)}
        simple = [f"{n} {a}, not {b}" for n, (a, b) in pairs.items() if a != b and n != "precision"]
        listed = "; ".join(simple + ["other precisions"] * (pairs["precision"][0] != pairs["precision"][1]))
        raise ValueError(
            f"The run {str(path)!r} has another configuration than arm {arm!r} ({listed}); remove it, rename the "
            "arm, or use another folder."
        )
    return stored


def _summary(stored: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    losses, at = arrays["losses"], arrays["measured_at"]
    edges = np.unique(np.linspace(0, len(losses), CURVE_POINTS + 1).astype(int))
    with np.errstate(all="ignore"):
        curve = [_short(np.median(losses[a:b])) for a, b in pairwise(edges)]
    measured = {}
    for name in _KEPT_MEASUREMENTS:
        values = arrays.get(f"measured_{name}")
        if values is not None:
            values = values if values.ndim == 1 else values.mean(axis=-1)
            measured[name] = [_short(v) for v in values]
    finite = losses[np.isfinite(losses)]
    last = final_loss(losses)
    return {
        "seed": stored["seed"],
        "diverged": stored["diverged"],
        "steps": stored["steps"],
        "least_loss": _short(finite.min()) if len(finite) else None,
        "last_loss": _short(np.median(losses[-50:])),
        "final_loss": None if last is None else _short(last),
        "excursions": [
            {"start": e.start, "end": e.end, "base": _short(e.base), "peak": _short(e.peak), "area": _short(e.area)}
            for e in excursions(losses)
        ],
        "curve": curve,
        "measured_at": at.tolist(),
        "measured": measured,
    }


def _short(value: Any) -> float | None:
    return float(f"{float(value):.{DIGITS}g}") if np.isfinite(value) else None


def arm_of(table: dict[str, Any], name: str, horizon: int | None = None) -> Arm:
    """An arm of a collected study as survival data."""
    runs = table["arms"][name]["runs"]
    return Arm.of(name, [r["diverged"] for r in runs], [r["steps"] for r in runs], horizon or horizon_of(table))


def horizon_of(table: dict[str, Any]) -> int:
    """The steps of the study."""
    return max(int(arm["experiment"]["steps"]) for arm in table["arms"].values())


def recovered(table: dict[str, Any], name: str) -> tuple[int, int]:
    """Of the diverged runs that were trained on (`--full`): how many recovered, and how many these are.

    Recovered: the median of the last 50 losses is not above `FACTOR` times the least loss.
    """
    runs = [r for r in table["arms"][name]["runs"] if r["diverged"] is not None]
    followed = [r for r in runs if r["steps"] > r["diverged"] + IN_A_ROW]
    back = [r for r in followed if r["last_loss"] is not None and r["last_loss"] <= FACTOR * r["least_loss"]]
    return len(back), len(followed)


HEADINGS = ("arm", "diverged", "median time", "log-rank p", "Fisher p", "hazard ratio (Peto)")


def rows(table: dict[str, Any], control: str | None = None) -> list[tuple[str, ...]]:
    """One row for each arm: how many diverged, when, and the tests against the control arm."""
    reference = arm_of(table, control or table["control"])
    result = []
    for name in table["arms"]:
        arm = arm_of(table, name)
        median = arm.median_time()
        cells = [name, f"{arm.events} of {arm.runs}", "-" if median is None else f"{median:.0f}"]
        if name == reference.name:
            cells += ["", "", ""]
        else:
            p, ratio = log_rank(arm, reference), peto(arm, reference)
            cells += ["-" if p is None else _p(p), _p(fisher(arm, reference))]
            cells += ["-" if ratio is None else f"{ratio[0]:.1f} ({ratio[1]:.1f} to {ratio[2]:.1f})"]
        result.append(tuple(cells))
    return result


def _p(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def markdown(table: dict[str, Any], control: str | None = None) -> str:
    """The table of a study."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(row) + " |" for row in rows(table, control)]
    steps, compared = horizon_of(table), control or table["control"]
    note = f"Horizon {steps} steps; tests against '{compared}'; all arms see the same seeds."
    counts = {name: recovered(table, name) for name in table["arms"]}
    told = [f"{name} {back} of {followed}" for name, (back, followed) in counts.items() if followed]
    if told:
        note += f" Of the diverged runs, trained on, these had recovered at the horizon: {', '.join(told)}."
    return "\n".join([*lines, "", note])


def page(table: dict[str, Any]) -> str:
    """A report page: the question, the table, what it was run on."""
    environment = ", ".join(f"{key} {value}" for key, value in table.get("environment", {}).items() if value)
    one = next(iter(table["arms"].values()))["experiment"]
    setting = (
        f"Width {one['width']}, {one['layers']} layers, batch {one['batch']}, {one['optimizer']}, rate {one['rate']:g}"
    )
    verdicts = "\n".join(f"- {line}" for line in conclusions(table))
    parts = [
        f"# {table['study']}",
        table["question"],
        setting + ".",
        markdown(table),
        verdicts,
        f"Run with {environment}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def conclusions(table: dict[str, Any]) -> list[str]:
    """What the survival data of each arm against the control support at the level of one percent."""
    reference, lines = arm_of(table, table["control"]), []
    for name in table["arms"]:
        if name == reference.name:
            continue
        arm = arm_of(table, name)
        p = log_rank(arm, reference)
        counts = f"{arm.events} of {arm.runs} against {reference.events} of {reference.runs} of {reference.name}"
        if p is not None and p < 0.01:
            faster = (arm.events / sum(arm.times)) > (reference.events / max(sum(reference.times), 1))
            lines.append(f"{name}: diverges {'sooner' if faster else 'later'} ({counts}, log-rank p {_p(p)}).")
        elif p is None:
            lines.append(f"{name}: nothing diverged in either arm ({counts}); the horizon cannot tell them apart.")
        else:
            lines.append(f"{name}: no difference shown ({counts}, log-rank p {_p(p)}).")
    return lines


def survival_figure(table: dict[str, Any], names: list[str] | None = None, axes: Any = None) -> Any:
    """Kaplan-Meier curves; needs matplotlib."""
    if axes is None:
        axes = _matplotlib().subplots(figsize=(7, 3.6), layout="constrained")[1]
    horizon = horizon_of(table)
    for name in names or list(table["arms"]):
        arm = arm_of(table, name)
        times, survival, low, high = kaplan_meier(arm)
        t = np.concatenate([[0], times, [horizon]])
        s = np.concatenate([[1], survival, survival[-1:]])
        (line,) = axes.step(t, s, where="post", label=f"{name} ({arm.events}/{arm.runs})")
        if arm.events:
            limits = [np.concatenate([[1], v, v[-1:]]) for v in (low, high)]
            axes.fill_between(t, *limits, step="post", alpha=0.1, color=line.get_color())
    axes.set(xlabel="step", ylabel="share not diverged", ylim=(-0.03, 1.03), xlim=(0, horizon))
    axes.legend(fontsize=8, loc="lower left")
    return axes


def loss_figure(table: dict[str, Any], names: list[str], axes: Any = None) -> Any:
    """Medians of the losses of every run, in bins; needs matplotlib."""
    if axes is None:
        axes = _matplotlib().subplots(figsize=(7, 3.6), layout="constrained")[1]
    for index, name in enumerate(names):
        for number, run in enumerate(table["arms"][name]["runs"]):
            curve = [np.nan if v is None else v for v in run["curve"]]
            x = (np.arange(len(curve)) + 0.5) * run["steps"] / len(curve)
            axes.plot(x, curve, color=f"C{index}", lw=0.8, alpha=0.8, label=None if number else name)
    axes.set(xlabel="step", ylabel="loss", yscale="log")
    axes.legend(fontsize=8)
    return axes


def _matplotlib() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ModuleNotFoundError("Figures need matplotlib: pip install mxnum[plots].") from None
    return plt


def write(study: Study, root: Path, results: Path, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Collect a study into `results/NAME.json` and `NAME.md`, and say the table."""
    table = collect(study, root)
    store(table, results, say)
    return table


def store(table: dict[str, Any], results: Path, say: Callable[[str], None] = print) -> None:
    """Write a collected study as `results/NAME.json` and `NAME.md`, and say the table."""
    name = table["study"]
    storage.write_json(results / f"{name}.json", table)
    storage.write_text(results / f"{name}.md", page(table))
    say(page(table))
