"""Collect a study's runs in one small JSON file, and make tables and figures from the file."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.lab import storage
from mxnum.lab.studies import studies
from mxnum.lab.studies.excursions import Course, Excursion, Outcome, excursions, final_loss, highest
from mxnum.lab.studies.statistics import Arm, Comparison, compare, corrected, kaplan_meier
from mxnum.lab.studies.study import Study, model_of
from mxnum.lab.studies.sweep import arm_directory
from mxnum.output.text_table import markdown_table

#: The number of points of a stored loss curve, and the number of digits of a stored number. Small
#: values of these two constants keep a study's file below a megabyte.
CURVE_POINTS, DIGITS = 40, 4
_KEPT_MEASUREMENTS = (
    *("zeta", "zeta_gamma", "zeta_beta", "zeta_w1", "zeta_w2", "cosine"),
    *("gradient_norm", "gamma_in_last_bin", "activations_in_last_bin", "gamma_error", "beta_error"),
    *("gamma_rms", "beta_rms", "w1_rms", "w2_rms", "second_moment_least", "second_moment_hundredth"),
)


def collect(
    study: Study, root: Path, seeds: Collection[int] | None = None, *, unfinished: bool = False
) -> dict[str, Any]:
    """Return the runs of a study as one table; arms and seeds without runs are left out.

    Without `seeds`, the table has the lowest stored seeds of each arm, at most `study.seeds` per
    arm. With `unfinished`, the table includes unfinished runs, up to their last checkpoints.
    """
    table: dict[str, Any] = {"study": study.name, "question": study.question, "control": study.control, "arms": {}}
    model, environments = study.model, []
    for name, configuration in study.arms.items():
        runs = []
        folder = arm_directory(root / study.folder, name)
        there = sorted(int(path.stem.removeprefix("seed-")) for path in folder.glob("seed-*.json"))
        for seed in there[: study.seeds] if seeds is None else [seed for seed in there if seed in seeds]:
            path = folder / f"seed-{seed}.json"
            stored = read_run(path, name, configuration)
            run = model.summary(configuration, stored, storage.read_arrays(path.with_suffix(".npz")), path)
            runs.append(run | {"environment": stored["environment"]})
        if unfinished:
            runs += model.under_way(folder, configuration)
        environments += [run.pop("environment") for run in runs]
        if runs:
            table["arms"][name] = {"experiment": configuration.to_dict(), "runs": _longest(runs)}
    if not table["arms"]:
        raise ValueError(f"Folder {str(root / study.folder)!r} has no run of the study {study.name!r}.")
    model.finish(study, table)
    return table | {"environment": together(environments)}


def together(environments: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the environments of several runs: for each key, join all values that occur."""
    found: dict[str, Any] = {}
    for key in dict.fromkeys(key for each in environments for key in each):
        values = dict.fromkeys(part for each in environments if each.get(key) for part in str(each[key]).split(" and "))
        found[key] = " and ".join(values)
    return found


def _longest(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each seed, the run with most steps."""
    return list({run["seed"]: run for run in sorted(runs, key=lambda run: (run["seed"], run["steps"]))}.values())


def stored(results: Path, name: str) -> dict[str, Any]:
    """Return the table in `results/NAME.json`, with arms in the order of the study."""
    table: dict[str, Any] = storage.read_json(results / f"{name}.json")
    if name in studies.STUDIES:
        table["arms"] = {arm: table["arms"][arm] for arm in studies.get(name).arms if arm in table["arms"]}
    return table


def read_run(path: Path, arm: str, configuration: Any) -> dict[str, Any]:
    """Return the stored data of a run; raise ValueError if its configuration is not the arm's.

    If the model can continue runs, the number of steps may differ from that of the arm.
    """
    stored: dict[str, Any] = storage.read_json(path)
    model = model_of(configuration)
    found = configuration.from_dict(stored[model.key])
    found = found.but(steps=configuration.steps) if model.prolongs else found
    if found != configuration:
        raise ValueError(
            f"The run {str(path)!r} does not have the configuration of arm {arm!r} "
            f"({differences(found.to_dict(), configuration.to_dict())}); remove it, rename the arm, or use another "
            "folder."
        )
    return stored


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return a text on the settings that differ, such as "rate 0.1, not 0.2" or "other recipe"."""
    pairs = {name: (value, wanted[name]) for name, value in found.items() if value != wanted[name]}
    parts = (f"other {n}" if dict in (type(a), type(b)) else f"{n} {a}, not {b}" for n, (a, b) in pairs.items())
    return "; ".join(parts)


#: The least difference between a loss and the least possible loss. `summary` raises smaller
#: differences to this number, because they are due to chance.
MOST_EXACT = 1e-3


def summary(stored: dict[str, Any], arrays: dict[str, Any], least: float = 0.0) -> dict[str, Any]:
    """Return the part of a run's data that tables store.

    `least` is the least possible loss. The function subtracts it from the losses before it searches
    for excursions.
    """
    losses, at = arrays["losses"], arrays["measured_at"]
    above = np.maximum(losses - least, MOST_EXACT) if least else losses
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
            asdict(e) | {name: _short(getattr(e, name)) for name in ("base", "peak", "area")} for e in excursions(above)
        ],
        "highest": _short(highest(above)) if len(losses) else None,
        "curve": curve,
        "measured_at": at.tolist(),
        "measured": measured,
    }


def _short(value: Any) -> float | None:
    return float(f"{float(value):.{DIGITS}g}") if np.isfinite(value) else None


def courses(table: dict[str, Any], name: str) -> list[Course]:
    """Return the excursions and the outcome of each run of an arm, as `Course` objects.

    Runs of older stored studies ended at the first divergence (see `divergence`), which counts as
    an excursion without a return.
    """
    horizon = horizon_of(table)
    found: list[Course] = []
    for run in table["arms"][name]["runs"]:
        if "excursions" in run:
            numbers = ("base", "peak", "area")
            spans = [Excursion(**e | {name: _number(e[name]) for name in numbers}) for e in run["excursions"]]
            final = run["final_loss"]
        else:
            spans = [] if run["diverged"] is None else [Excursion(run["diverged"], None, math.nan, math.nan, math.nan)]
            final = run.get("last_loss")
        found.append(Course(run.get("seed", len(found)), run["steps"], horizon, tuple(spans), final))
    return found


def _number(stored: float | None) -> float:
    """Return a stored number; null stands for infinity, which JSON does not have."""
    return math.inf if stored is None else stored


def is_followed(table: dict[str, Any]) -> bool:
    """Return True if the runs of the table continued after an excursion."""
    return all("excursions" in run for arm in table["arms"].values() for run in arm["runs"])


def arm_of(table: dict[str, Any], name: str, horizon: int | None = None, event: str = "first") -> Arm:
    """Return an arm as survival data; `event` is "first" (excursion) or "away" (runaway)."""
    runs, limit = courses(table, name), horizon or horizon_of(table)
    found = [getattr(run, event) for run in runs]
    return Arm.of(name, found, [run.steps for run in runs], limit, [run.seed for run in runs])


def horizon_of(table: dict[str, Any]) -> int:
    """Return the horizon of a study: excursions count if they start before this step.

    If the study has no horizon, return the number of steps of its longest run.
    """
    arms = table["arms"].values()
    planned = max(int(arm["experiment"]["steps"]) for arm in arms)
    return int(table.get("horizon") or max(planned, *(run["steps"] for arm in arms for run in arm["runs"])))


def control_of(table: dict[str, Any], name: str) -> str:
    """Return the control of an arm, or the arm itself if the control was not run."""
    found = str(table.get("controls", {}).get(name, table["control"]))
    return found if found in table["arms"] else name


def compared(table: dict[str, Any], controls: Mapping[str, str], event: str = "first") -> dict[str, Comparison]:
    """Compare each arm with its control on the same seeds, with Holm's correction of p-values."""
    found = {
        name: compare([(arm_of(table, name, event=event), arm_of(table, control, event=event))])
        for name, control in controls.items()
    }
    return corrected(found)


def _controls(table: dict[str, Any], control: str | None = None) -> dict[str, str]:
    """Return the control of each arm: `control` if given, otherwise the arm's own control.

    Arms that are their own control are left out.
    """
    pairs = {name: control or control_of(table, name) for name in table["arms"]}
    return {name: other for name, other in pairs.items() if name != other}


def outcomes(table: dict[str, Any], name: str) -> dict[Outcome, int]:
    """Return the number of runs of an arm for each outcome."""
    found = [run.outcome for run in courses(table, name)]
    return {outcome: found.count(outcome) for outcome in Outcome}


def outcomes_text(table: dict[str, Any], name: str) -> str:
    """Return a text that counts an arm's runs with an excursion: "9 of 12, 4 back, 5 away"."""
    count, runs = outcomes(table, name), len(table["arms"][name]["runs"])
    words = {Outcome.RECOVERED: "back", Outcome.RUNAWAY: "away", Outcome.OPEN: "open"}
    parts = [f"{count[outcome]} {word}" for outcome, word in words.items() if count[outcome]]
    return ", ".join([f"{runs - count[Outcome.NONE]} of {runs}", *parts])


def returns(table: dict[str, Any], name: str) -> Arm:
    """Return the length in steps of the first excursion of each run, as survival data."""
    runs = [(run.seed, run.steps, run.excursions[0]) for run in courses(table, name) if run.excursions]
    ends = [None if e.end is None else e.end - e.start for _, _, e in runs]
    return Arm.of(name, ends, [steps - e.start for _, steps, e in runs], seeds=[seed for seed, _, _ in runs])


def endings(table: dict[str, Any], name: str, control: str) -> list[float]:
    """Return, for each seed, the logarithm of the ratio of the final losses of arm and control.

    Seeds without both losses are left out.
    """
    others = {run.seed: run.final for run in courses(table, control)}
    pairs = [(run.final, others.get(run.seed)) for run in courses(table, name)]
    return [math.log(ours / theirs) for ours, theirs in pairs if ours and theirs]


def degraded(table: dict[str, Any], name: str, control: str) -> tuple[int, int]:
    """Return the number of degraded runs, and the number of runs that could be degraded.

    A run can be degraded only if neither it nor its control has an excursion.
    """
    controls = {run.seed: run for run in courses(table, control)}
    pairs = [(run, controls[run.seed]) for run in courses(table, name) if run.seed in controls]
    parts = [high for run, other in pairs if (high := run.degraded(other)) is not None]
    return sum(parts), len(parts)


HEADINGS = (
    "arm", "excursion", "recovered", "runaway", "open", "degraded", "median start", "median peak", "hazard ratio",
    "exact p", "p after Holm",
)  # fmt: skip


def rows(table: dict[str, Any], control: str | None = None) -> list[tuple[str, ...]]:
    """Return one row for each arm: its outcomes, times, and the test against the control."""
    controls, result = _controls(table, control), []
    tests = compared(table, controls)
    for name in table["arms"]:
        arm, count, runs = arm_of(table, name), outcomes(table, name), courses(table, name)
        median, high = arm.median_time(), degraded(table, name, controls.get(name, name))
        peaks = [run.peak for run in runs if run.peak is not None and not math.isnan(run.peak)]
        cells = [name, f"{arm.events} of {arm.runs}"]
        cells += [str(count[o]) if arm.events else "-" for o in (Outcome.RECOVERED, Outcome.RUNAWAY, Outcome.OPEN)]
        cells += [f"{high[0]} of {high[1]}" if high[1] and name in controls else "-"]
        cells += ["-" if median is None else f"{median:.0f}", f"{np.median(peaks):.0f}" if peaks else "-"]
        if name not in controls:
            cells += ["", "", ""]
        else:
            test = tests[name]
            cells += ["-" if test.ratio is None else "{:.1f} ({:.1f} to {:.1f})".format(*test.ratio)]
            cells += ["-", "-"] if test.p is None else [_p(test.p), _p(test.corrected_p)]
        result.append(tuple(cells))
    return result


def _p(value: float | None) -> str:
    return "-" if value is None else "< 0.0001" if value < 1e-4 else f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def markdown(table: dict[str, Any], control: str | None = None) -> str:
    """Return the table of a study in Markdown, with its note."""
    return f"{markdown_table(HEADINGS, rows(table, control))}\n\n{note(table, control)}"


def note(table: dict[str, Any], control: str | None = None) -> str:
    """Return the note below a table, which explains its columns and tests."""
    seeds = max(len(arm["runs"]) for arm in table["arms"].values())
    own = table.get("controls") and control is None
    against = "their own controls" if own else f"'{control or table['control']}'"
    words = (
        f"Excursions count if they start before step {horizon_of(table)}. Tests compare arms with {against} on the "
        f"same seeds. The number of seeds is {seeds}, so no p-value can be below {2.0 ** (1 - seeds):.2g}. "
    )
    if is_followed(table):
        steps = [run["steps"] for arm in table["arms"].values() for run in arm["runs"]]
        if min(steps) < max(steps):
            words += f"The runs have {min(steps):,} to {max(steps):,} steps. "
        elif any(steps[0] > arm["experiment"]["steps"] for arm in table["arms"].values()):
            words += f"The runs have {steps[0]:,} steps, more than were asked for. "
        return words + "Peaks are multiples of the base, which is the least running median before the excursion."
    return words + (
        "Runs of this study ended at the first rise of their loss: 20 losses in a row above 100 times the least loss "
        "so far. The rise counts as an excursion; whether the loss would have come back is not known ('open')."
    )


def seeds_text(table: dict[str, Any]) -> str:
    """Return the seeds of a table as text: "3 to 8" if none is missing, otherwise a list."""
    seeds = sorted({run["seed"] for arm in table["arms"].values() for run in arm["runs"]})
    is_whole = len(seeds) > 2 and seeds[-1] - seeds[0] + 1 == len(seeds)
    return f"{seeds[0]} to {seeds[-1]}" if is_whole else ", ".join(map(str, seeds))


def page(table: dict[str, Any]) -> str:
    """Return a report page: the question, the table, and the environment of the runs."""
    arms = [arm["experiment"] for arm in table["arms"].values()]
    texts = {"width": "width {}", "layers": "{} layers", "batch": "batch {}", "optimizer": "{}", "rate": "rate {:g}"}
    shared = [text.format(arms[0][key]) for key, text in texts.items() if len({arm[key] for arm in arms}) == 1]
    setting = ", ".join(shared)
    setting = setting[:1].upper() + setting[1:]
    verdicts = "\n".join(f"- {line}" for line in conclusions(table))
    parts = [
        f"# {table['study']}",
        table["question"],
        setting and f"{setting}.",
        markdown(table),
        verdicts,
        _under_way_text(table),
        made_with(table),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def made_with(table: dict[str, Any]) -> str:
    """Return a sentence on the versions and machines of the runs."""
    return f"Run with {', '.join(f'{key} {value}' for key, value in table.get('environment', {}).items() if value)}."


def _under_way_text(table: dict[str, Any]) -> str:
    """Return a sentence with the steps that unfinished runs have reached."""
    parts = [
        f"{name}, seed {run['seed']}, at step {run['steps']} of {arm['experiment']['steps']}"
        for name, arm in table["arms"].items()
        for run in arm["runs"]
        if run["diverged"] is None and run["steps"] < arm["experiment"]["steps"]
    ]
    return f"Unfinished, and without an excursion so far: {'; '.join(parts)}." if parts else ""


def conclusions(table: dict[str, Any]) -> list[str]:
    """Return, for each arm, a sentence with the result of its exact test against the control.

    The significance level is 1 %, after Holm's correction.
    """
    controls, lines = _controls(table), []
    for name, test in compared(table, controls).items():
        ours, theirs = (arm_of(table, each) for each in (name, controls[name]))
        counts = f"{ours.events} of {ours.runs} runs against {theirs.events} of {theirs.runs} of '{controls[name]}'"
        if test.p is None:
            lines.append(f"{name}: no pair of runs differs before the horizon ({counts}).")
        elif test.corrected_p is not None and test.corrected_p < 0.01:
            when = "sooner" if test.comes_sooner else "later"
            lines.append(f"{name}: excursions come {when} ({counts}, corrected p {_p(test.corrected_p)}).")
        else:
            lines.append(f"{name}: no difference shown ({counts}, corrected p {_p(test.corrected_p)}).")
    return lines


def survival_figure(
    table: dict[str, Any],
    names: list[str] | None = None,
    axes: Any = None,
    colour: Callable[[str, int], str] = lambda name, index: f"C{index}",
) -> Any:
    """Draw Kaplan-Meier curves of first excursions, and dashed curves of runaways.

    Needs matplotlib.
    """
    if axes is None:
        axes = errors.package("matplotlib.pyplot", "plots").subplots(figsize=(7, 3.6), layout="constrained")[1]
    horizon, followed = horizon_of(table), is_followed(table)
    for index, name in enumerate(names or list(table["arms"])):
        arm, away = arm_of(table, name), arm_of(table, name, event="away")
        parts = f"{name} ({arm.events}/{arm.runs}" + (f", {away.events} not back)" if followed else ")")
        (line,) = axes.step(*_curve(arm, horizon)[:2], where="post", label=parts, color=colour(name, index))
        if arm.events:
            t, _, low, high = _curve(arm, horizon)
            axes.fill_between(t, low, high, step="post", alpha=0.1, color=line.get_color())
        if away.events:
            axes.step(*_curve(away, horizon)[:2], where="post", ls="--", color=line.get_color())
    ylabel = "share without an excursion" if followed else "share without a rise"
    axes.set(xlabel="step", ylabel=ylabel, ylim=(-0.03, 1.03), xlim=(0, horizon))
    axes.legend(fontsize=8, loc="lower left")
    return axes


def _curve(arm: Arm, horizon: int) -> tuple[Any, Any, Any, Any]:
    """Return an arm's Kaplan-Meier curve with confidence limits, from step 0 to the horizon."""
    times, *values = kaplan_meier(arm)
    t = np.concatenate([[0], times, [horizon]])
    survival, low, high = (np.concatenate([[1], v, v[-1:]]) for v in values)
    return t, survival, low, high


def loss_figure(
    table: dict[str, Any],
    names: list[str],
    axes: Any = None,
    colour: Callable[[str, int], str] = lambda name, index: f"C{index}",
    *,
    medians: bool = False,
) -> Any:
    """Draw the losses of each run as medians over bins of steps.

    With `medians`, thick lines show the median over the runs of each arm.
    """
    if axes is None:
        axes = errors.package("matplotlib.pyplot", "plots").subplots(figsize=(7, 3.6), layout="constrained")[1]
    for index, name in enumerate(names):
        for number, run in enumerate(table["arms"][name]["runs"]):
            curve = [np.nan if v is None else v for v in run["curve"]]
            x = (np.arange(len(curve)) + 0.5) * run["steps"] / len(curve)
            thin = {"lw": 0.5, "alpha": 0.4} if medians else {"lw": 0.8, "alpha": 0.8}
            label = None if number or medians else name
            axes.plot(x, curve, color=colour(name, index), label=label, **thin)
        if medians:
            curves = np.array([run["curve"] for run in table["arms"][name]["runs"]], float)
            axes.plot(x, np.nanmedian(curves, axis=0), color=colour(name, index), lw=2, label=name)
    axes.set(xlabel="step", ylabel="loss", yscale="log")
    axes.legend(fontsize=8)
    return axes


def write(
    study: Study,
    root: Path,
    results: Path,
    say: Callable[[str], None] = print,
    *,
    unfinished: bool = False,
    add: bool = False,
) -> dict[str, Any]:
    """Make a table of a study's runs, write the table with `store`, and return the table.

    With `add`, the stored table's runs are added to the new table.
    """
    table = collect(study, root, unfinished=unfinished)
    if add and (results / f"{study.name}.json").exists():
        table = joined(study, stored(results, study.name), table)
    store(study, table, results, say)
    return table


def joined(study: Study, *tables: Mapping[str, Any]) -> dict[str, Any]:
    """Make one table of several tables; keep the longest version of each run."""
    arms: dict[str, Any] = {}
    for name, wanted in study.arms.items():
        found = [table["arms"][name] for table in tables if name in table["arms"]]
        if any(wanted.from_dict(arm["experiment"]).but(steps=wanted.steps) != wanted for arm in found):
            raise ValueError(f"The stored table has a different configuration for arm {name!r}; use another folder.")
        if found:
            runs = _longest(run for arm in found for run in arm["runs"])
            arms[name] = found[0] | {"runs": runs}
    environment = together([table["environment"] for table in tables])
    table = {**tables[-1], "control": study.control, "arms": arms, "environment": environment}
    study.model.finish(study, table)
    return table


def store(study: Study, table: dict[str, Any], results: Path, say: Callable[[str], None] = lambda text: None) -> None:
    """Write a table as `results/NAME.json`, with its page, and pass the page to `say`."""
    storage.write_json(results / f"{table['study']}.json", table)
    for end, text in study.model.files(table).items():
        storage.write_text(results / f"{table['study']}.{end}", text)
        if end == "md":
            say(text)
