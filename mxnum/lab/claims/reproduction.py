"""Train the runs that decide the claims, check the claims, and write the report folder."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from mxnum import errors
from mxnum.lab import storage
from mxnum.lab.claims import document, page, stored
from mxnum.lab.claims.claim import CLAIMS, chosen
from mxnum.lab.claims.evidence import Verdict
from mxnum.lab.claims.report_folder import ReportFolder
from mxnum.lab.claims.verdicts import Entry, Report, judge, machine
from mxnum.lab.studies import critical, interventions, studies, sweep
from mxnum.lab.studies.report import store as store_study
from mxnum.lab.studies.run_study import run_study
from mxnum.output.files import as_path, written_whole

#: The results files whose runs train within minutes. `FULL` adds the files whose runs train for
#: hours, and lists the fastest files first.
QUICK = ("quick.json",)
_FIRST = (
    *QUICK, "sgd-limits.json", "interventions.json", "recipes.json", "confirm.json", "ablations.json",
    "language/rates.json", "language/recipes.json", "language/recipes-converged.json", "language/ladder.json",
    "language/ladder-four-bits.json", "logits/logits.json", "factorial.json", "critical-rate.json",
)  # fmt: skip
FULL = tuple(dict.fromkeys((*_FIRST, *(name for claim in CLAIMS.values() for name in claim.takes))))
#: The results files whose checks need the operands of the layers, so that training stores them.
KEEPING = ("language/organisation.json",)
#: The number of seeds that one process trains together. A small number lets all processes end at
#: about the same time.
STACK = 4
#: `PLAN` and `ACTED_ON` are claim I7's plan of interventions and number of seeds; the runs of claim
#: I7 are in the arm "E2M1" of the study "small". `LIMITS` is the number of seeds of claim B2.
PLAN, ACTED_ON, LIMITS = interventions.Plan(), 8, 4


class Watch(Protocol):
    """An object that shows the progress of `reproduce_into`."""

    def say(self, text: str) -> None:
        """Show a message."""
        return

    def at(self, part: str, done: float, total: float, what: str) -> None:
        """Show the progress of `part`, "checks" or "training", and its current work `what`."""
        return


class _Nobody(Watch):
    """A `Watch` that shows nothing."""


@dataclass(frozen=True)
class Request:
    """The arguments of a call of `reproduce_into`: the claims to check, and options."""

    ids: tuple[str, ...]
    full: bool = False
    processes: int | None = None

    @property
    def command(self) -> str:
        """The shell command that makes this request, without its folder."""
        only = "" if self.ids == tuple(CLAIMS) else f" --only {','.join(self.ids)}"
        return f"mxnum reproduce --{'full' if self.full else 'quick'}{only}"

    def files(self) -> list[str]:
        """Return the results files that this request makes.

        If a claim accepts any one of several files, choose the first that this request can make.
        """
        made, claims = FULL if self.full else QUICK, [CLAIMS[id] for id in self.ids]
        wanted = {next((n for n in names if n in made), None) for claim in claims for names in claim.alternatives}
        wanted |= {name for claim in claims for name in claim.takes}
        return [name for name in made if name in wanted]


@dataclass
class Reproduction:
    """The result of a call of `reproduce_into`."""

    folder: Path
    report: Report
    #: Training runs that ended with an exception.
    failures: list[sweep.Failure] = field(default_factory=list)
    #: The seconds that this call and earlier calls in the same folder took.
    seconds: float = 0.0

    @property
    def broken(self) -> list[Entry]:
        """The claims whose check raised an exception."""
        return [e for e in self.report if e.verdict == Verdict.FAILED]


def reproduce_into(
    folder: str | Path,
    ids: Iterable[str] | None = None,
    *,
    full: bool = False,
    fresh: bool = False,
    processes: int | None = None,
    watch: Watch | None = None,
) -> Reproduction:
    """Check claims (default: all), train the runs that they need, and write the report.

    With `fresh` the training runs get new seeds. After Ctrl-C the function writes a report of the
    checks that are done. To continue, repeat the call with the same folder. Training starts
    `processes` processes (default: one for each core), so call this function under
    ``if __name__ == "__main__":``.
    """
    wanted = tuple(CLAIMS) if ids is None else chosen("ids", ids)
    request = Request(tuple(id for id in CLAIMS if id in wanted), full, processes)
    return _Session(as_path(folder, "folder"), request, fresh, watch or _Nobody()).run()


class _Session:
    """One call of `reproduce_into`."""

    def __init__(self, folder: Path, request: Request, fresh: bool, watch: Watch) -> None:
        self.request, self.watch, self.files = request, watch, request.files()
        for package in (
            "jinja2",
            *(("scipy", "threadpoolctl") if self.files else ()),
        ):  # raise the error for a missing package before training starts
            errors.package(package, "reproduce")
        self.store, self.begun = ReportFolder(folder), time.monotonic()
        self.facts = self.store.open(fresh)
        self.entries: dict[str, Entry] = {}
        self.failures: list[sweep.Failure] = []
        #: The results files that this call cannot make, each with the reason.
        self.impossible: dict[str, str] = {}
        self.stop = threading.Event()

    def run(self) -> Reproduction:
        first = [id for id in self.request.ids if not CLAIMS[id].needs and not self._waits(id)]
        self.entries = {id: kept for id in first if (kept := self.store.entry(id)) is not None}
        if self.entries or self.store.number_of_runs():
            found = f"{len(self.entries)} of {len(first)} checks and {self.store.number_of_runs()} training runs"
            self.watch.say(f"Continuing in {self.store.folder}, which has {found}.")
        if importlib.util.find_spec("torch") is None and (wanted := [name for name in self.files if "/" in name]):
            self.impossible = dict.fromkeys(wanted, f"Language models need PyTorch: {errors.install('torch')}")
            self.watch.say(self.impossible[wanted[0]])
            self.files = [name for name in self.files if name not in wanted]
        left = [id for id in first if id not in self.entries]
        # The checks run in a thread of this process, while other processes train.
        beside = threading.Thread(target=self._check_all, args=(left,), daemon=True)
        interrupted = False
        try:
            beside.start()
            for name in self.files:
                self._make(name)
                self._write(interrupted=False)
            while beside.is_alive():
                beside.join(0.2)
        except KeyboardInterrupt:
            interrupted = True
            self.stop.set()
            self.watch.say("Interrupted; run the same command to continue.")
        report = self._write(interrupted)
        return Reproduction(self.store.folder, report, self.failures, self._seconds())

    def _check_all(self, ids: list[str]) -> None:
        """Run the checks that need no training, one after the other."""
        for done, id in enumerate(ids):

            def tell(text: str, done: int = done, id: str = id) -> None:
                if self.stop.is_set():
                    raise _Stopped
                self.watch.at("checks", done, len(ids), f"{id}: {text}")

            try:
                tell(CLAIMS[id].title)
                self.entries[id] = judge(CLAIMS[id], self.store.context(tell))
            except _Stopped:
                return
            self.store.keep(self.entries[id])
        self.watch.at("checks", len(ids), len(ids), "done")

    def _show(self, state: sweep.State) -> None:
        self.watch.at("training", state.done, state.total, str(state))

    def _make(self, name: str) -> None:
        """Train the runs of a results file that are not stored yet, and write the file."""
        path, seed = self.store.results / name, int(self.facts["first_seed"])
        study = name.removesuffix(".json")
        count = f" {self.files.index(name) + 1} of {len(self.files)}" if len(self.files) > 1 else ""
        self.watch.say(f"Training{count}: {study}, for {', '.join(self._claims_of(name))}.")
        if name == "sgd-limits.json":
            if not path.exists():
                critical.write_sgd_limits(path, tuple(range(seed, seed + LIMITS)), say=self._aside(study))
            return
        if "/" in name:
            self._train_language_models(name, seed)
            return
        if name == "interventions.json":
            try:
                found = interventions.gather(
                    studies.get("small"), "E2M1", PLAN, self.store.runs, seeds=ACTED_ON, first_seed=seed,
                    processes=self.request.processes, say=self._aside(study), show=self._show,
                )  # fmt: skip
            except (interventions.NothingDivergedError, interventions.RunsFailedError) as error:
                self.failures += getattr(error, "failures", [])
                self.impossible[name] = str(error)
                self.watch.say(str(error))
            else:
                storage.write_json(path, found)
            return
        outcome = run_study(
            study, self.store.runs, processes=self.request.processes, stack=STACK,
            first_seed=seed if self.facts["fresh"] else None, say=self.watch.say, show=self._show,
        )  # fmt: skip
        self.failures += outcome.failed
        if outcome.table["arms"]:
            storage.write_json(path, outcome.table)

    def _train_language_models(self, name: str, seed: int) -> None:
        path = self.store.results / name
        study = studies.read(path.stem, "language_model")
        study = replace(study, first_seed=seed) if self.facts["fresh"] else study
        here = {arm: each for arm, each in study.arms.items() if each.source != "text" or Path(each.text).is_file()}
        if left := [arm for arm in study.arms if arm not in here]:
            self.watch.say(f"{study.name}: skipping the arms {', '.join(left)}, because their text files do not exist.")
        study = replace(study, arms=here)
        runs = self.store.runs / "language" / study.name
        outcome = run_study(
            study, runs, processes=self.request.processes, keep_operands=name in KEEPING,
            say=self.watch.say, show=self._show,
        )  # fmt: skip
        self.failures += outcome.failed
        if outcome.table["arms"]:
            store_study(study, outcome.table, path.parent)

    def _aside(self, study: str) -> Callable[[str], None]:
        return lambda line: self.watch.at("training", 0, 0, f"{study}: {line.strip()}")

    def _claims_of(self, name: str) -> list[str]:
        claims = (CLAIMS[id] for id in self.request.ids)
        return [c.id for c in claims if name in c.takes or any(name in names for names in c.alternatives)]

    def _seconds(self) -> float:
        return float(self.facts["seconds"]) + time.monotonic() - self.begun

    def _write(self, interrupted: bool) -> Report:
        """Write the report of the checks that are done so far."""
        entries = tuple(self._entry(id) for id in self.request.ids)
        report = Report(entries, machine(), interrupted)
        self.store.record(self.facts | {"seconds": round(self._seconds(), 1), "command": self.request.command})
        facts = self.facts | {"seconds": self._seconds(), "environment": storage.environment()}
        pages = {
            "report.html": document.html(report, self.request.command, facts, self.store.context()),
            "claims.md": page.summary(report, self.request.command),
        }
        for name, text in pages.items():
            with written_whole(self.store.folder / name) as partial:
                partial.write_text(text, encoding="utf-8")
        return report

    def _waits(self, id: str) -> bool:
        """Return True if the check needs training that is not done yet."""
        claim, context = CLAIMS[id], self.store.context()
        taken = [name for name in self.files if name in claim.takes and name not in self.impossible]
        return bool(claim.missing(context) if claim.needs else [name for name in taken if not context.has(name)])

    def _entry(self, id: str) -> Entry:
        """Return the entry of a claim: the result of its check, or why the check did not run."""
        if id in self.entries:
            return self.entries[id]
        claim = CLAIMS[id]
        if not self._waits(id):
            found = judge(claim, self.store.context())
            if not claim.needs:
                self.entries[id] = found
            return found
        made = [name for names in claim.alternatives for name in names if name in self.files]
        if claim.needs and not made:
            command = replace(self.request, ids=(id,), full=True).command
            remark = f"The quick runs do not suffice to check this claim: run `{command}`."
            if (answer := stored.load()["answers"].get(id)) is not None:
                remark = (
                    f"Not run here. Answer from stored runs: {answer} To repeat these runs in a checkout, run "
                    f"`{claim.command}`."
                )
        elif any(name in self.impossible for name in made):
            remark = next(self.impossible[name] for name in made if name in self.impossible)
        elif made and self.failures:
            remark = "Every training run for this claim failed."
        else:
            remark = "The check has not run yet; run the same command to continue."
        return Entry(claim, Verdict.NOT_RUN, remark=remark)


class _Stopped(BaseException):
    """The exception that stops the thread in which the checks run.

    The base class is BaseException, so that an ``except Exception`` in a check does not catch it.
    """
