"""Read and write the folder of a reproduction, so that a second call can continue the first.

- `report.html`, `claims.md`: the report;
- `data/reproduction.json`: the request, seeds, versions, machine, duration;
- `data/checks/I1.json`: the evidence of each claim;
- `data/arrays/NAME.npz`: arrays that figures show;
- `data/results/quick.json`: one table for each study;
- `data/runs/width-64/E2M1/seed-N.npz`, `.json`: every run.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import mxnum
from mxnum.lab import storage
from mxnum.lab.claims.claim import CLAIMS, Context
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement, Verdict
from mxnum.lab.claims.verdicts import Entry, machine
from mxnum.lab.studies.study import FIRST_SEED
from mxnum.output.files import remove_abandoned


class ReportFolder:
    """The folder of a reproduction; each file in the folder is written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.results, self.runs = self.data / "results", self.data / "runs"
        self.diary = self.data / "reproduction.json"

    def open(self, fresh: bool = False) -> dict[str, Any]:
        """Return the content of `reproduction.json`; make the folder and the file if missing."""
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"Path {str(self.folder)!r} must be a folder, not a file.")
        if self.folder.is_dir() and not self.diary.exists() and any(self.folder.iterdir()):
            raise ValueError(f"Folder {str(self.folder)!r} must be empty, or one that this command made before.")
        remove_abandoned(self.folder)
        if self.diary.exists():
            facts: dict[str, Any] = storage.read_json(self.diary)
            if fresh and not facts["fresh"]:
                raise ValueError(
                    f"Folder {str(self.folder)!r} has runs with the recorded seeds; use another folder for fresh seeds."
                )
            return facts
        seed = secrets.randbelow(10**6) * 100 if fresh else FIRST_SEED
        facts = {"first_seed": seed, "fresh": fresh, "seconds": 0.0, "started": time.strftime("%Y-%m-%d %H:%M:%S%z")}
        self.record(facts)
        return facts

    def record(self, facts: Mapping[str, Any]) -> None:
        """Write `facts` and the current environment to `reproduction.json`."""
        storage.write_json(self.diary, dict(facts) | {"environment": storage.environment()})

    def entry(self, id: str) -> Entry | None:
        """Return a claim's stored entry, or None if nothing is stored.

        The result is also None if the code of mxnum, the kind of machine, or the version of Python
        or of a package has changed since the entry was stored.
        """
        path = self._evidence(id)
        if not path.exists():
            return None
        stored = storage.read_json(path)
        if (stored["code"], stored["machine"]) != (code(), machine()):
            return None
        evidence = evidence_from(stored["evidence"])
        return Entry(CLAIMS[id], evidence.verdict, evidence)

    def keep(self, entry: Entry) -> None:
        """Store the evidence of a check; if the check failed, delete the stored evidence."""
        path = self._evidence(entry.claim.id)
        if entry.verdict == Verdict.FAILED:
            path.unlink(missing_ok=True)
            return
        stored = {"code": code(), "machine": machine(), "evidence": asdict(entry.evidence)}
        storage.write_json(path, stored | {"id": entry.claim.id, "verdict": str(entry.verdict)})

    def context(self, tell: Callable[[str], object] = lambda text: None) -> Context:
        """Return a `Context` through which checks and figures use this folder."""
        return Context(self.results, tell, self._keep_arrays, self._arrays)

    def _keep_arrays(self, name: str, arrays: Mapping[str, Any]) -> None:
        storage.write_arrays(self.data / "arrays" / f"{name}.npz", dict(arrays))

    def _arrays(self, name: str) -> dict[str, Any] | None:
        path = self.data / "arrays" / f"{name}.npz"
        return storage.read_arrays(path) if path.exists() else None

    def number_of_runs(self) -> int:
        """Return the number of training runs that are complete."""
        return len(list(self.runs.rglob("seed-*.json")))

    def _evidence(self, id: str) -> Path:
        return self.data / "checks" / f"{id}.json"


def evidence_from(table: Mapping[str, Any]) -> Evidence:
    """Return the `Evidence` from which `dataclasses.asdict` made the stored `table`.

    Tuples of the original configuration are lists in the result.
    """
    kinds = {"comparisons": Comparison, "statements": Statement}
    return Evidence(**dict(table) | {name: [kind(**each) for each in table[name]] for name, kind in kinds.items()})


@cache
def code() -> str:
    """Return a hash of the sources and data of the package.

    A stored check runs again if the hash has changed since the check was stored.
    """
    package = Path(mxnum.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for kind in ("py", "csv", "toml") for path in package.rglob(f"*.{kind}")):
        digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]
