"""Studies of language models: arms on the same seeds from a TOML file, what was run of them, and tables."""

from __future__ import annotations

import csv
import io
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.analysis import measure
from mxnum.lab import storage
from mxnum.lab.language_model.decoder import Decoder, gradient_of_logits, operands_at_the_end, train
from mxnum.lab.language_model.setting import Setting
from mxnum.lab.language_model.sources import Markov, source_of
from mxnum.lab.studies import report, sweep
from mxnum.lab.studies.statistics import mean_interval, sign_flip
from mxnum.lab.studies.study_file import combinations
from mxnum.lab.studies.sweep import arm_directory
from mxnum.lab.theory import logit_gradient_bias, logit_rest, sampled_logit_rest
from mxnum.output.files import as_path
from mxnum.output.text_table import markdown_table

#: Blocks of sixteen within a row (a token; a row of weights), within a column, and both, whose errors are compared.
ORGANISATIONS = {"row": (1, 16), "column": (16, 1), "tile": (4, 4)}
#: The studies of the documentation, which have names.
STUDIES = {path.stem: path for path in sorted((Path(__file__).parent / "files" / "language_model").glob("*.toml"))}
_TOP = ("name", "question", "control", "seeds", "first_seed", "measure_every", "base", "arms", "grid")


@dataclass(frozen=True)
class Study:
    """Arms that are compared on the same seeds."""

    name: str
    question: str
    arms: Mapping[str, Setting]
    seeds: int
    first_seed: int
    control: str
    measure_every: int = 50
    #: Arms with a control of their own, because they have other batches or another source.
    controls: Mapping[str, str] = field(default_factory=dict)
    #: The name in the file of an arm of a grid.
    named: Mapping[str, str] = field(default_factory=dict)

    def control_of(self, arm: str) -> str:
        """The arm that one is compared with."""
        return self.controls.get(arm, self.control)


def read(path: str | Path) -> Study:
    """The study in a file, or one of `STUDIES` by its name.

    ``[base]`` has what all arms share, each ``[arms."name"]`` what it changes, and perhaps the arm that is its
    ``control``. Both take fields of `Setting`. ``[grid]`` has lists: every arm is run with every combination, and
    compared with its control in the same one.
    """
    path = STUDIES.get(str(path)) or as_path(path)
    errors.require(path.is_file(), "config", f"a TOML file or one of {errors.joined(STUDIES)}", str(path))
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ValueError(f"File {str(path)!r} must be TOML: {problem}.") from None
    place = f"file {str(path)!r}"
    try:
        for name in table:
            errors.choose("name", name, _TOP)
        given, grid = table.get("arms", {}), table.get("grid", {})
        errors.require(bool(given) and all(isinstance(a, dict) for a in given.values()), "arms", "tables", given)
        errors.require(isinstance(grid, dict), "grid", "a table", grid)
        place = f"[grid] of file {str(path)!r}"
        combined = combinations(grid)
        place = f"[base] of file {str(path)!r}"
        base = Setting.from_dict(table.get("base", {}))
        control = errors.choose("control", table.get("control", next(iter(given))), tuple(given))
        arms: dict[str, Setting] = {}
        controls: dict[str, str] = {}
        named: dict[str, str] = {}
        for name, changes in given.items():
            place = f"[arms.{name}] of file {str(path)!r}"
            own = errors.choose("control", changes.get("control", control), tuple(given))
            kept = {key: value for key, value in changes.items() if key != "control"}
            for suffix, values in combined:
                arms[name + suffix] = base.but(**(kept | values))
                named |= {name + suffix: name} if suffix else {}
                if own + suffix != control + combined[0][0]:
                    controls[name + suffix] = own + suffix
        place = f"file {str(path)!r}"
        return Study(
            table.get("name", path.stem),
            table.get("question", ""),
            arms,
            errors.integer("seeds", table.get("seeds", 6), 1, 1 << 20),
            errors.integer("first_seed", table.get("first_seed", 1), 0, 1 << 60),
            control + combined[0][0],
            errors.integer("measure_every", table.get("measure_every", 50), 0, 1 << 40),
            controls,
            named,
        )
    except (ValueError, TypeError) as problem:
        raise type(problem)(f"In {place}: {problem}") from None


@dataclass(frozen=True)
class Task:
    """One seed of an arm, as `sweep` runs it."""

    arm: str
    setting: Setting
    seeds: tuple[int]
    directory: Path
    measure_every: int = 0
    keep_operands: bool = False

    @property
    def label(self) -> str:
        """The arm and the seed."""
        return f"{self.arm}, seed {self.seeds[0]}"

    @property
    def steps(self) -> int:
        """Of the run."""
        return self.setting.steps

    def run(self, progress: Any = None) -> float:
        """Train and save, from a checkpoint if there is one; the loss at the end."""
        (seed,) = self.seeds
        tell = sweep.telling(self.label, progress)
        run = train(
            self.setting, seed, measure_every=self.measure_every, checkpoint=self.directory / f"checkpoint-{seed}.pt",
            report=lambda step, loss: tell(step),
        )  # fmt: skip
        if self.keep_operands:
            storage.write_arrays(self.directory / f"seed-{seed}-operands.npz", operands_at_the_end(run))
        run.save(self.directory)
        return run.evaluation


def tasks_for(study: Study, runs: Path, seeds: int | None = None, keep_operands: bool = False) -> list[Task]:
    """The runs that the folder lacks, or whose operands it lacks; the first seed of all arms before the second."""
    count = study.seeds if seeds is None else errors.positive_integer("seeds", seeds)
    sweep.check_folders(study.arms)
    tasks = [
        Task(name, setting, (seed,), arm_directory(runs, name), study.measure_every, keep_operands)
        for seed in range(study.first_seed, study.first_seed + count)
        for name, setting in study.arms.items()
    ]
    ends = ".json", *(["-operands.npz"] if keep_operands else [])
    return [task for task in tasks if not all((task.directory / f"seed-{task.seeds[0]}{e}").exists() for e in ends)]


def run_study(
    study: Study,
    runs: Path,
    *,
    seeds: int | None = None,
    processes: int = 0,
    niceness: int = 0,
    scheduler: str | None = None,
    keep_operands: bool = False,
    say: Callable[[str], None] = print,
    show: sweep.Show | None = None,
) -> list[sweep.Failure]:
    """Run what the folder lacks; interrupted, the same call goes on. What failed comes back.

    With ``processes=0`` the runs follow one another in this process. Otherwise that many are started, with their
    priority lowered by `niceness`, or the workers of the dask cluster at the address `scheduler` take the runs; call it
    under ``if __name__ == "__main__":`` then. With `keep_operands` a run keeps what its linear layers multiply at the
    end, in ``seed-N-operands.npz``. `say` and `show` are those of `mxnum.lab.studies.run_study`.
    """
    for text in sorted({setting.text for setting in study.arms.values() if setting.source == "text"}):
        errors.require(Path(text).is_file(), "text", "a file that is there", text)
    tasks = tasks_for(study, as_path(runs, "runs").resolve(), seeds, keep_operands)
    if scheduler is not None:
        return sweep.run_on_cluster(tasks, scheduler, say=say, show=show)
    if processes:
        return sweep.run_all(tasks, processes=processes, niceness=niceness, say=say, show=show)
    for task in tasks:
        say(f"{task.label}: {task.run():.4f}")
    return []


#: A control that ends further above the entropy, in nats, has learnt nothing that could be at rest.
MOST_NOISE = 10.0


def collect(study: Study, runs: Path, seeds: int | None = None) -> dict[str, Any]:
    """What was run, as a table that `mxnum.lab.studies.report` reads too; missing runs are left out.

    It has as many seeds as the study, and as `seeds` where these are more.
    """
    environments = []
    table: dict[str, Any] = {
        "study": study.name, "question": study.question, "control": study.control, "controls": dict(study.controls),
        "named": dict(study.named), "arms": {},
    }  # fmt: skip
    for name, setting in study.arms.items():
        found = []
        for seed in range(study.first_seed, study.first_seed + max(study.seeds, seeds or 0)):
            path = arm_directory(runs, name) / f"seed-{seed}.json"
            if path.exists():
                found.append(_summary(path, name, setting))
                environments.append(storage.read_json(path)["environment"])
        if found:
            table["arms"][name] = {"experiment": setting.to_dict(), "at_rest": predicted_gap(setting), "runs": found}
    for name, arm in table["arms"].items():
        setting, control = study.arms[name], table["arms"].get(study.control_of(name))
        rests = setting.centred and arm["at_rest"] is not None and gradient_of_logits(setting).is_mx
        if rests and control is not None and excess_of(control) < MOST_NOISE:  # (not where it is NaN)
            arm["sampled_rest"] = sampled_gap(setting, excess_of(control))
    errors.require(bool(table["arms"]), "runs", "a folder with runs of the study", str(runs))
    return table | {"environment": report.together(environments)}


def _summary(path: Path, name: str, setting: Setting) -> dict[str, Any]:
    stored, arrays = storage.read_json(path), storage.read_arrays(path.with_suffix(".npz"))
    found, wanted = Setting.from_dict(stored["setting"]).to_dict(), setting.to_dict()
    if found != wanted:
        raise ValueError(
            f"The run {str(path)!r} does not have the setting of arm {name!r} "
            f"({report.differences(found, wanted)}); remove it or rename the arm."
        )
    kept = report.summary(stored, arrays, least=stored["entropy"][0] if stored["entropy"] else 0.0)
    measured = {
        key.removeprefix("measured_"): [float(f"{v:.4g}") for v in values.reshape(len(values), -1).mean(-1)]
        for key, values in arrays.items()
        if key.startswith("measured_") and key != "measured_at"
    }
    operand, predicted = gradient_of_logits(setting), None
    if operand.is_mx and operand.rounding in ("rne", "sr") and "measured_probability" in arrays:
        predicted = [float(f"{v:.4g}") for v in predicted_biases(setting, arrays["measured_probability"])]
    operands = path.with_name(f"{path.stem}-operands.npz")
    if operands.exists():
        kept["organisations"] = organisation_errors(storage.read_arrays(operands))
    return kept | {
        "evaluation": stored["evaluation"], "entropy": stored["entropy"], "measured": measured,
        "predicted_bias": predicted,
    }  # fmt: skip


def organisation_errors(operands: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The relative error of kept operands in E2M1 with the rule even, by `ORGANISATIONS`: means over the layers."""
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
    """What the analysis says of the targets' pull, look by look, from the probabilities of the symbols that came."""
    operand = gradient_of_logits(setting)
    bias = logit_gradient_bias(
        operand.mx_format, setting.tokens, setting.factor, scale_rule=operand.scale_rule, rounding="rne",
        block_size=operand.block_size,
    )  # fmt: skip
    # (of a model whose losses are not numbers any more, or that knows all, it says nothing)
    return [bias.shrinking(each).bias if each.min() < 1 else math.nan for each in probabilities]


def predicted_gap(setting: Setting) -> float | None:
    """The excess loss of free logits at rest, for a Markov source and a last layer with MX gradients; else None.

    The gradients of its weights and those that go on to the layers below have to be rounded alike: what comes to rest
    between two that pull to different places is not known.
    """
    operand = gradient_of_logits(setting)
    if setting.source != "markov" or setting.label_smoothing or setting.z_loss or operand.rounding not in ("rne", "sr"):
        return None
    if setting.where in ("all", "last") and setting.recipe.gradients_for_weights not in (None, operand):
        return None
    if not operand.is_mx:
        return 0.0
    bias = logit_gradient_bias(
        operand.mx_format, setting.tokens, setting.factor, scale_rule=operand.scale_rule, rounding=operand.rounding,
        block_size=operand.block_size,
    )  # fmt: skip
    return logit_rest(_probabilities(setting), bias).excess


def sampled_gap(setting: Setting, noise: float) -> float:
    """The same by the kernels, where all is rounded and nothing drifts, for a model `noise` above the entropy."""
    operand, rows = gradient_of_logits(setting), max(1, min(512, 2**18 // setting.vocabulary))
    found = sampled_logit_rest(
        _probabilities(setting), operand.mx_format, setting.tokens, setting.factor, noise=max(noise, 0.0),
        scale_rule=operand.scale_rule, rounding=operand.rounding, block_size=operand.block_size, rows=rows,
    )  # fmt: skip
    return float(f"{found.excess:.4g}")


def excess_of(arm: Mapping[str, Any]) -> float:
    """How far an arm ends above the entropy of its source, on average."""
    return float(np.mean([run["evaluation"] - run["entropy"][1] for run in arm["runs"]]))


def _probabilities(setting: Setting) -> Any:
    source = source_of(setting)
    assert isinstance(source, Markov)
    return np.append(source.probabilities, np.zeros(source.vocabulary - len(source.probabilities)))


HEADINGS = (
    "arm", "seeds", "excursions", "loss", "above the entropy", "gap to control", "95 %", "p", "gap predicted at rest",
    "by kernels", "bias", "bias predicted", "beyond max", "sum", "common weight", "error",
)  # fmt: skip
#: What a reader of the table must know.
NOTE = (
    "Losses are in nats, of fresh batches at the end, means over seeds; gaps in pairs of the same seed. *Excursions* "
    "are runs whose loss above the entropy rose to twenty times what it had been, and what became of them. *Bias* is "
    "the relative change of the targets' pull, *sum* that of all components of a token over the mean target, both "
    "means over the looks; *common weight* is the norm of the last layer's mean row over that of a row's deviation "
    "from it, at the last look. *Error* is the relative root mean square error of the rounded operands, over layers, "
    "operands and looks. *Gap predicted at rest* is `theory.logit_rest` of the source, *by kernels* what "
    "`theory.sampled_logit_rest` has with the control's excess as its noise; *bias predicted* is "
    "`theory.logit_gradient_bias` at the probabilities of the run."
)


def rows(table: dict[str, Any]) -> list[tuple[str, ...]]:
    """One row for each arm; gaps are means over seeds in pairs, tests exact by exchanging the two runs of a seed."""
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
        cells = [name, str(len(runs)), report.told(table, name) if strayed else "-", f"{loss:.4f}"]
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
    """A quantity's mean over looks and seeds."""
    found = [np.mean(run["measured"][name]) for run in runs.values() if run["measured"].get(name)]
    return how.format(float(np.mean(found))).replace("%", " %") if found else "-"


def page(table: dict[str, Any]) -> str:
    """A page of Markdown: the question and the table."""
    found = list(zip(HEADINGS, *rows(table), strict=True))
    columns = [column for column in found if set(column[1:]) - {"-", ""}]
    headings, *lines = zip(*columns, strict=True)
    environment = table.get("environment", {})
    listed = ", ".join(f"{key} {value}" for key, value in environment.items() if value)
    parts = [f"# {table['study']}", table["question"], markdown_table(headings, lines), NOTE, f"Run with {listed}."]
    return "\n\n".join(part for part in parts if part) + "\n"


def losses_text(table: dict[str, Any]) -> str:
    """Every run as a line of CSV, as `mxnum lab fit` reads it; parameters are all, those of the embedding too.

    An arm has its name in the file: what a grid changes of it is what laws are fitted over.
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


def store(table: dict[str, Any], folder: Path) -> None:
    """Write a collected study as `NAME.json` and `NAME.md`, and the loss of every run as `NAME.csv`."""
    storage.write_json(folder / f"{table['study']}.json", table)
    storage.write_text(folder / f"{table['study']}.md", page(table))
    storage.write_text(folder / f"{table['study']}.csv", losses_text(table))
