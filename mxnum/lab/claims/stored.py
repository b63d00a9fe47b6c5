"""Read a table that ships with the package: the results of stored studies on runaways.

``python -m mxnum.lab.claims.stored docs/lab/results`` writes the table. A report marks results from
the table as stored, because the machine that writes the report has not run these studies.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mxnum.lab import storage
from mxnum.lab.claims.claim import CLAIMS, Context
from mxnum.lab.claims.mlp_runs import over_rates
from mxnum.lab.studies import critical, report
from mxnum.lab.studies.excursions import Outcome
from mxnum.lab.studies.statistics import compare

PATH = Path(__file__).parent / "data" / "runaways.json"
#: STUDIES are the studies whose runs all have 8,000 steps; only jumps before step 4,000 can make a
#: run lost. ARMS are the arms that the report quotes.
STUDIES = ("recovery", "parts", "runaway-32")
ARMS = ("FP32", "E2M1", "E2M1, LN FP32", "LN E2M1", "E4M3")


def counted(results: Path) -> dict[str, Any]:
    """Count the runs that jump and the lost runs of each arm and learning rate in stored studies.

    The counts for an arm and a rate come from the study with the most such runs. The result also
    holds the hazard ratio of the study `hazard`, and the answers of claims I6a and I6b.
    """
    rows: dict[tuple[float, str], dict[str, Any]] = {}
    for study in STUDIES:
        table = storage.read_json(results / f"{study}.json")
        for name, arm in table["arms"].items():
            rate = float(arm["experiment"]["rate"])
            kind = critical.rate_of(name)[0] if ", rate " in name else name
            courses = report.courses(table, name)
            row = {
                "study": study, "rate": rate, "arm": kind, "runs": len(courses),
                "jump": sum(bool(run.excursions) for run in courses),
                "lost": sum(run.outcome is Outcome.RUNAWAY for run in courses),
            }  # fmt: skip
            if kind in ARMS and row["runs"] > rows.get((rate, kind), {"runs": 0})["runs"]:
                rows[rate, kind] = row
    ratio = compare(over_rates(storage.read_json(results / "hazard.json"), "E4M3")).ratio
    found = {id: CLAIMS[id].run(Context(results)) for id in ("I6a", "I6b")}
    return {
        "rows": [rows[key] for key in sorted(rows, key=lambda key: (key[0], ARMS.index(key[1])))],
        "hazard": None if ratio is None else [round(r, 2) for r in ratio],
        "answers": {id: f"{evidence.answer} ({evidence.number})" for id, evidence in found.items()},
    }


def load() -> dict[str, Any]:
    """Return the result of `counted` that ships with the package."""
    found: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return found


def sentence() -> str:
    """Return a text with the results of stored studies, which this run did not repeat."""
    found = load()
    lost = {row["arm"]: f"{row['lost']} of {row['runs']}" for row in found["rows"] if row["rate"] == 0.034}
    return (
        f"Stored studies, which this run did not repeat, found: at a learning rate of 0.034, {lost['E2M1']} runs "
        f"are lost with everything in 4 bits, {lost['LN E2M1']} with 4-bit layer norm alone, and "
        f"{lost['E2M1, LN FP32']} with 4-bit products alone. 8 bits (E4M3) raise the hazard of a jump by at most "
        f"{100 * (found['hazard'][2] - 1):.0f} %."
    )


if __name__ == "__main__":
    storage.write_json(PATH, counted(Path(sys.argv[1])))
