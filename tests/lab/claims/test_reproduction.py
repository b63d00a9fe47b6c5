"""Tests of running, interrupting and continuing a reproduction, with a tiny study."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")
pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")

from mxnum.lab.claims import CLAIMS, Evidence, Statement, Verdict, figures, language_models, last_layer, reproduction
from mxnum.lab.claims.reproduction import Request, reproduce_into
from mxnum.lab.claims.rows import b11, i10
from mxnum.lab.mlp.config import Experiment, uniform_precision
from mxnum.lab.studies import studies
from mxnum.lab.studies.interventions import Plan
from mxnum.recipe import Operand

RESULTS = Path(__file__).parents[3] / "docs" / "lab" / "results"

TINY = Experiment(width=32, layers=1, batch=32, steps=6)
ARMS = {"FP32": TINY, "E2M1": TINY.but(precision=uniform_precision("mxfp4_e2m1"))}


class Told:
    def __init__(self):
        self.said, self.parts = [], set()

    def say(self, text):
        self.said.append(text)

    def at(self, part, done, total, what):
        self.parts.add(part)


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setitem(studies.STUDIES, "quick", studies.Study("quick", "?", ARMS, 2, "FP32", 2))


@pytest.fixture
def undrawn(monkeypatch):
    """Exclude the figures from reports, because drawing them takes longer than the tiny runs."""
    monkeypatch.setattr(figures, "figures_of", lambda claim, context: [])


@pytest.fixture
def counted(fake):
    """Replace the checks of M9, M5, I6c and I7; return the list of calls for M9 and M5."""
    calls = []

    def first(context):
        calls.append("M9")
        return Evidence(statements=(Statement("so", True),))

    def second(context):
        calls.append("M5")
        return Evidence(statements=(Statement("not so", False),))

    def third(context):
        table = context.first("confirm.json", "quick.json")
        return Evidence(statements=(Statement(f"{len(table['arms'])} arms", True),))

    fake("M9", first)
    fake("M5", second)
    fake("I6c", third, needs=(("confirm.json", "quick.json"),))
    fake("I7", third, needs=("interventions.json",))
    return calls


def test_a_report_of_everything_asked_for(tmp_path, counted):
    told = Told()
    found = reproduce_into(tmp_path / "r", ["M9", "I6c", "I7"], processes=1, watch=told)
    verdicts = {e.claim.id: e.verdict for e in found.report}
    assert verdicts == {"I6c": Verdict.CONFIRMED, "I7": Verdict.NOT_RUN, "M9": Verdict.REPRODUCED}
    assert str(found.report["I6c"].evidence.statements[0]) == "2 arms: yes"
    assert "`mxnum reproduce --full --only I7`" in found.report["I7"].remark
    assert (found.failures, found.broken, found.report.interrupted) == ([], [], False)
    table = (tmp_path / "r" / "claims.md").read_text()
    assert "| Training in 4 bits runs away sooner | confirmed | ours: 1 of 1 statements hold. |" in table
    assert "Continuing" not in " ".join(told.said)
    assert {"checks", "training"} == told.parts
    data = tmp_path / "r" / "data"
    assert len(list((data / "runs").rglob("seed-*.npz"))) == 4
    facts = json.loads((data / "reproduction.json").read_text())
    assert facts["command"] == "mxnum reproduce --quick --only I6c,I7,M9"
    assert facts["environment"]["numpy"]


@pytest.mark.usefixtures("undrawn")
def test_a_second_run_continues(tmp_path, counted):
    reproduce_into(tmp_path / "r", ["M9", "I6c"], processes=0)
    told = Told()
    found = reproduce_into(tmp_path / "r", ["M9", "M5", "I6c"], processes=0, watch=told)
    assert counted == ["M9", "M5"]
    assert told.said[0] == f"Continuing in {tmp_path / 'r'}, which has 1 of 2 checks and 4 training runs."
    assert "quick: 2 arms, 2 seeds from 39304300, 0 tasks to do." in told.said
    assert found.report.counts == {"reproduced": 1, "not reproduced": 1, "confirmed": 1}


@pytest.mark.usefixtures("undrawn")
def test_an_interruption_keeps_what_is_there(tmp_path, counted, monkeypatch):
    def interrupted(*arguments, **keywords):
        raise KeyboardInterrupt

    told = Told()
    with monkeypatch.context() as patch:
        patch.setattr(reproduction, "run_study", interrupted)
        found = reproduce_into(tmp_path / "r", ["I6c"], processes=0, watch=told)
    assert found.report.interrupted
    assert found.report["I6c"].remark == "The check has not run yet; run the same command to continue."
    assert told.said[-1] == "Interrupted; run the same command to continue."
    assert "This report is not complete" in (tmp_path / "r" / "report.html").read_text()
    again = reproduce_into(tmp_path / "r", ["I6c"], processes=0)
    assert again.report["I6c"].evidence.statements
    assert not again.report.interrupted
    assert not list(tmp_path.rglob("*.partial"))


def test_failures_are_told_and_the_rest_is_used(tmp_path, counted, fake, monkeypatch):
    broken = TINY.but(weights=Operand("mxfp4_e2m1", scale_rule="released_bump", block_size=24))
    arms = {"FP32": TINY, "broken": broken}
    monkeypatch.setitem(studies.STUDIES, "quick", studies.Study("quick", "?", arms, 1, "FP32", 2))
    fake("M4", lambda context: 1 / 0)
    found = reproduce_into(tmp_path / "r", ["I6c", "M4"], processes=0)
    assert [(f.arm, f.seed) for f in found.failures] == [("broken", 39304300)]
    assert str(found.report["I6c"].evidence.statements[0]) == "1 arms: yes"
    assert [e.claim.id for e in found.broken] == ["M4"]


def test_full_reproduction_computes_limits_and_interventions(tmp_path, monkeypatch):
    """Check that a full reproduction runs interventions, and that a second reuses SGD's limits."""
    sgd = Experiment(width=32, layers=2, batch=32, steps=80, optimizer="sgd", rate=5, precision=ARMS["E2M1"].precision)
    monkeypatch.setitem(studies.STUDIES, "small", studies.Study("small", "?", {"E2M1": sgd}, 2, "E2M1"))
    monkeypatch.setattr(reproduction, "PLAN", Plan(lead=10, watch=20, perturbed=1, every=5))
    monkeypatch.setattr(reproduction, "ACTED_ON", 2)
    calls = []

    def limits(seeds, *_settings):
        calls.append(seeds)
        rows = [{"mean": -0.5, "deviation": 0, "common": False, "ratios": [2.0, 1.99, 2.01, 2.0], "predicted": 2.0}]
        return {"rows": rows, "experiment": {"width": 1, "layers": 1, "batch": 1, "steps": 1}, "seeds": list(seeds)}

    monkeypatch.setattr(reproduction.critical, "sgd_limits", limits)
    for _ in range(2):
        told = Told()
        found = reproduce_into(tmp_path / "r", ["B2", "I7"], full=True, processes=0, watch=told)
        assert found.report["B2"].verdict == Verdict.CONFIRMED
        assert found.report["I7"].evidence.statements
        assert told.said[-2:] == ["Training 1 of 2: sgd-limits, for B2.", "Training 2 of 2: interventions, for I7."]
    assert calls == [(39304300, 39304301, 39304302, 39304303)]


@pytest.mark.usefixtures("undrawn")
def test_where_nothing_diverges_there_is_nothing_to_act_on(tmp_path, monkeypatch):
    monkeypatch.setitem(studies.STUDIES, "small", studies.Study("small", "?", ARMS, 2, "E2M1"))
    monkeypatch.setattr(reproduction, "ACTED_ON", 2)
    told = Told()
    found = reproduce_into(tmp_path / "r", ["I7", "I3"], full=True, processes=0, watch=told)
    assert found.report["I7"].verdict == Verdict.NOT_RUN
    assert found.report["I7"].remark == told.said[-1]
    assert told.said[-1].startswith("No seed diverged")


@pytest.mark.usefixtures("undrawn")
def test_training_of_a_study_names_its_claims(tmp_path, monkeypatch):
    for name in ("quick", "confirm"):
        monkeypatch.setitem(studies.STUDIES, name, studies.Study(name, "?", ARMS, 1, "FP32", 2))
    told = Told()
    found = reproduce_into(tmp_path / "r", ["I5", "I6c"], full=True, processes=0, watch=told)
    assert [line for line in told.said if line.startswith("Training")] == [
        "Training 1 of 2: quick, for I5, I6c.",
        "Training 2 of 2: confirm, for I5.",
    ]
    assert found.report["I6c"].evidence.statements


def test_claims_about_language_models_train_them(tmp_path, monkeypatch):
    """Check that claims about language models cause training, or a report that torch is missing."""
    told = Told()
    with monkeypatch.context() as patch:
        patch.setattr(reproduction.importlib.util, "find_spec", lambda name: None)
        found = reproduce_into(tmp_path / "without", ["B11"], full=True, watch=told)
    assert "torch" in found.report["B11"].evidence.note
    assert told.said[-1] == 'Language models need PyTorch: pip install "mxnum[torch]"'
    pytest.importorskip("torch")

    path = tmp_path / "logits.toml"
    arms = "".join(f'[arms."{name}"]\n' for name in ("float32", "last x 1"))
    base = "width = 16\nvocabulary = 16\nlayers = 1\ncontext = 8\nsequences = 2\nsteps = 2\n"
    path.write_text(f'name = "logits"\nseeds = 1\nfirst_seed = 3\n[base]\n{base}{arms}')
    monkeypatch.setitem(studies.SHIPPED["language_model"], "logits", path)
    seen = {}
    monkeypatch.setattr(reproduction, "judge", lambda claim, context: seen.update(table=context.json(b11.STUDY)))
    monkeypatch.setattr(reproduction._Session, "_write", lambda self, interrupted: self._entry("B11"))
    monkeypatch.setattr(reproduction, "FULL", (b11.STUDY,))
    reproduce_into(tmp_path / "with", ["B11"], full=True, processes=1)
    assert set(seen["table"]["arms"]) == {"float32", "last x 1"}


def test_arms_on_a_text_that_is_not_there_are_left_out_and_operands_are_kept(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="the extra torch is not installed")

    path = tmp_path / "organisation.toml"
    base = "width = 32\nvocabulary = 32\nlayers = 1\ncontext = 8\nsequences = 2\nsteps = 2\n"
    on_text = f"[arms.text]\nsource = 'text'\ntext = '{tmp_path / 'none.txt'}'\nvocabulary = 256\n"
    path.write_text(f"seeds = 1\nfirst_seed = 3\n[base]\n{base}[arms.chain]\n{on_text}")
    monkeypatch.setitem(studies.SHIPPED["language_model"], "organisation", path)
    seen, told = {}, Told()
    name = "language/organisation.json"
    monkeypatch.setattr(reproduction, "judge", lambda claim, context: seen.update(table=context.json(name)))
    monkeypatch.setattr(reproduction._Session, "_write", lambda self, interrupted: self._entry("M7"))
    reproduce_into(tmp_path / "r", ["M7"], full=True, processes=0, watch=told)
    left = "organisation: skipping the arms text, because their text files do not exist."
    assert left in told.said
    assert set(seen["table"]["arms"]) == {"chain"}
    assert "organisations" in seen["table"]["arms"]["chain"]["runs"][0]


def test_files_of_quick_and_full_reproductions():
    everything = tuple(CLAIMS)
    assert Request(everything).files() == list(reproduction.QUICK)
    assert Request(("I1", "M4")).files() == []
    assert Request(everything, full=True).files() == list(reproduction.FULL)
    assert Request(("I5", "I6a", "I6c"), full=True).files() == ["quick.json", "confirm.json"]
    of_both = [*language_models.RECIPE_FILES, *i10.CLAIM.takes, b11.STUDY, *last_layer.FILES, *b11.FURTHER]
    assert Request(("I10", "B11"), full=True).files() == of_both
    stored = {
        str(path.relative_to(RESULTS)) for kind in ("language", "logits") for path in (RESULTS / kind).glob("*.json")
    }
    needed = {name for claim in CLAIMS.values() for names in claim.alternatives for name in names}
    # A reproduction does not run these studies; commands of `mxnum lab` run them for hours.
    by_hours = {"paper-scale.json", "hazard.json", "parts.json", "delay.json", "language/accumulators.json"}
    assert stored - by_hours <= set(reproduction.FULL), "a stored study that no command makes"
    assert needed - set(reproduction.FULL) == by_hours, "a claim that no command decides"


def test_mistakes(tmp_path):
    with pytest.raises(ValueError, match="Argument 'ids' must be one of"):
        reproduce_into(tmp_path / "r", ["I99"])
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("package", ["jinja2", "scipy"])
def test_missing_package_raises_before_training(package, tmp_path, counted, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"'{package}' is not installed; .* \"mxnum\[reproduce\]\""):
        reproduce_into(tmp_path / "r")
    assert not (tmp_path / "r").exists()
