"""Tests of a release: public names, the version in all files, and reproducible builds."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import mxnum
from tests.public_names import LIST, MODULES, NEEDS, ROOT, lines_of

LISTED = LIST.read_text().splitlines()
CHANGED = """Public names of {module} are not what docs/reference/public-names.txt lists.
  gone or changed: {gone}
  new or changed: {new}
If the change is intended: run `python -m tests.public_names --record`, add a line to CHANGELOG.md, and keep each
removed name for one version with a DeprecationWarning. If the change is not intended: give the name an underscore, or
leave it out of __all__."""


@pytest.mark.parametrize("module", MODULES)
def test_public_names_and_their_signatures(module):
    if module in NEEDS:
        pytest.importorskip(NEEDS[module], reason=f"{NEEDS[module]} is not installed")
    here = lines_of(module)
    deeper = [f"{other}." for other in MODULES if other.startswith(f"{module}.")]
    listed = [line for line in LISTED if line.startswith(f"{module}.") and not line.startswith(tuple(deeper))]
    gone, new = [line for line in listed if line not in here], [line for line in here if line not in listed]
    assert here == listed, CHANGED.format(module=module, gone=gone, new=new)


def test_no_name_is_listed_that_no_module_has():
    assert [line for line in LISTED if not line.startswith(tuple(f"{module}." for module in MODULES))] == []


def test_the_version_is_the_same_everywhere():
    version = mxnum.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    released = re.findall(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert released[0][0] == version
    assert f"\ndate-released: {released[0][1]}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_changelog_begins_each_version_with_five_lines():
    for version in (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]:
        if not version.startswith("Unreleased"):
            assert len(re.findall(r"^- \*\*", version.split("\n### ")[0], re.M)) == 5, version.splitlines()[0]


@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed")
def test_builds_are_the_same_bytes(tmp_path):
    """Check that builds from two copies with different file times have equal bytes."""
    built = []
    for copy in ("one", "two"):
        source, to = tmp_path / copy, tmp_path / f"{copy}-built"
        shutil.copytree(
            ROOT, source, ignore=shutil.ignore_patterns(".*", "_build", "__pycache__"), copy_function=shutil.copyfile
        )
        subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(to)], cwd=source, check=True)
        built.append({path.name: path.read_bytes() for path in to.iterdir()})
    assert built[0] == built[1]
    assert len(built[0]) == 2
    wheel = next(name for name in built[0] if name.endswith(".whl"))
    names = zipfile.ZipFile(tmp_path / "one-built" / wheel).namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    kinds = {name.rpartition(".")[2] for name in names if name.startswith("mxnum/")}
    assert kinds == {"py", "typed", "css", "html", "js", "jinja", "csv", "json", "toml", "cu"}
    assert {name.partition("/")[0] for name in names} == {
        "mxnum", "pytest_mxnum.py", f"mxnum-{mxnum.__version__}.dist-info",
    }  # fmt: skip
