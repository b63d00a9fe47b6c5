"""Imports go downward only, the layers stay independent, and files stay readable."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mxnum"

#: Each module and what it may import from the package, at module level or inside functions.
ALLOWED = {
    "errors": set(),
    "modes": set(),
    "aliases": {"errors"},
    "formats": {"errors", "aliases"},
    "reference": {"errors", "formats", "modes", "reference"},
    "tensors": {"errors"},
    "device": {"errors", "tensors"},
    "dtypes": {"errors", "formats", "device", "tensors"},
    "layout": {"errors"},
    "memo": set(),
    "files": set(),
    "scalar": {"formats", "modes", "scalar"},
    "engine": {"errors", "formats", "modes", "device", "dtypes", "layout", "scalar", "engine"},
    "chunks": {"dtypes", "layout", "scalar"},
    "by_numpy": {"formats", "modes", "dtypes", "layout", "scalar", "chunks"},
    "stack_arithmetic": {"formats", "scalar"},
    "stacks": {"errors", "formats", "modes", "dtypes", "layout", "chunks", "engine", "stack_arithmetic"},
    "arguments": {"errors", "formats", "device", "dtypes", "layout", "memo", "engine"},
    "views": {"tensors", "device", "dtypes", "engine"},
    "array": {"errors", "formats", "tensors", "device", "dtypes", "layout", "files", "arguments", "views", "engine"},
    "ops": {
        "errors",
        "formats",
        "modes",
        "tensors",
        "device",
        "dtypes",
        "layout",
        "memo",
        "arguments",
        "array",
        "engine",
        "stacks",
    },
    "linalg": {"errors", "formats", "modes", "tensors", "device", "dtypes", "arguments", "array", "engine"},
    "rotations": {"errors", "tensors", "dtypes", "arguments", "engine"},
    "recipe": {"errors", "aliases", "formats", "modes", "recipe"},
    "linear": {"errors", "formats", "modes", "tensors", "dtypes", "arguments", "array", "ops", "linalg", "engine"},
    "analysis": {
        "errors",
        "formats",
        "modes",
        "dtypes",
        "layout",
        "files",
        "scalar",
        "chunks",
        "by_numpy",
        "array",
        "ops",
        "analysis",
    },
    "claims": {
        "errors",
        "files",
        "formats",
        "dtypes",
        "ops",
        "rotations",
        "analysis",
        "experiments",
        "plots",
        "claims",
    },
    "experiments": {"errors", "files", "formats", "modes", "recipe", "analysis", "experiments"},
    "torch": {"errors", "formats", "modes", "recipe", "interop", "torch"},
    "plots": {"errors", "formats", "modes", "dtypes", "layout", "ops", "analysis"},
    "interop": {"errors", "formats", "tensors", "dtypes", "layout", "files", "array", "ops", "interop"},
    "conformance": {
        "errors",
        "formats",
        "modes",
        "reference",
        "dtypes",
        "by_numpy",
        "array",
        "ops",
        "linalg",
        "layout",
        "files",
        "interop",
        "conformance",
    },
    "cli": {
        "errors",
        "aliases",
        "formats",
        "modes",
        "layout",
        "chunks",
        "by_numpy",
        "reference",
        "dtypes",
        "files",
        "array",
        "analysis",
        "plots",
        "conformance",
        "interop",
        "experiments",
        "claims",
        "cli",
    },
    "__main__": {"cli"},
    "__init__": {"analysis", "array", "formats", "linalg", "linear", "modes", "ops", "recipe", "rotations"},
}
FILES = sorted(PACKAGE.rglob("*.py"))
#: The folders of the engine: each may import those before it, but for
ROOMS = ("machine", "rounding", "traversal", "packing", "loops", "quantizing", "products", "rotations", "cuda")
#: those that need fewer: how an operand of a product is decoded is an argument.
BELOW = {
    "products": ("machine", "rounding", "traversal", "packing"),
    "rotations": ("machine", "traversal"),
}
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))


def layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_layers(path: Path) -> set[str]:
    layers = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "mxnum":
            rest = node.module.split(".")[1:]
            layers |= {rest[0]} if rest else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            layers |= {a.name.split(".")[1] for a in node.names if a.name.startswith("mxnum.")}
    return layers


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_downward(path):
    assert layer(path) in ALLOWED, "a new layer needs its place in ALLOWED and in ARCHITECTURE.md"
    assert imported_layers(path) <= ALLOWED[layer(path)]


@pytest.mark.parametrize("path", sorted((PACKAGE / "engine").glob("*/*.py")), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_imports_go_one_way_between_folders_of_the_engine(path):
    assert path.parent.name in ROOMS, "a new folder needs its place in ROOMS and in the docstring of mxnum.engine"
    room = path.parent.name
    below = BELOW.get(room, ROOMS[: ROOMS.index(room)])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("mxnum.engine."):
            assert node.module.split(".")[2] in (*below, room, "request"), node.module


def test_layers_have_no_cycle():
    order = list(ALLOWED)
    for name, below in ALLOWED.items():
        for other in below - {name}:
            assert ALLOWED[other].isdisjoint({name}), f"{name} and {other} import each other"
            assert other in order


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_numba_is_imported_in_the_engine_and_the_experiments_kernels_only(path):
    modules = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    if layer(path) != "engine" and path != PACKAGE / "experiments" / "kernels.py":
        assert not any(m and m.split(".")[0] == "numba" for m in modules)


def test_proofs_see_the_definition_and_the_loops_only():
    allowed = {"scalar", "engine", "formats", "modes"}
    for path in (ROOT / "proofs").rglob("*.py"):
        if not path.name.startswith("test_"):
            assert imported_layers(path) <= allowed, path.name


def test_benchmarks_see_the_public_api_only():
    assert BENCHMARKS
    for path in BENCHMARKS:
        assert imported_layers(path) <= {"ElementFormat", "formats", "torch"}, path.name


@pytest.mark.parametrize("path", [*FILES, *BENCHMARKS], ids=lambda p: str(p.relative_to(ROOT)))
def test_files_can_be_read_in_one_sitting(path):
    lines = path.read_text().splitlines()
    assert len(lines) <= 520, f"{len(lines)} lines"
    assert not any(re.search(r"\b(TODO|FIXME|XXX)\b", line) for line in lines)


def test_there_are_tests_for_every_folder():
    for folder in {path.parent for path in FILES}:
        mirrored = ROOT / "tests" / folder.relative_to(PACKAGE)
        assert any(mirrored.glob("test_*.py")), f"no tests in {mirrored.relative_to(ROOT)}"
