"""Tests that imports go downward only, and that files have no marks of unfinished work."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mxnum"
PUBLIC_NAMES = ROOT / "docs" / "reference" / "public-names.txt"

#: The layers of the package (modules and folders) from the bottom up, each with the layers that it
#: may import.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "output": set(),
    "formats": {"errors", "output"},
    "modes": {"errors", "formats"},
    "units": {"errors", "output", "formats"},
    "layout": {"errors"},
    "reference": {"errors", "formats", "modes", "units"},
    "memory": {"errors", "formats"},
    "definition": {"formats", "modes", "layout", "memory", "units"},
    "engine": {"errors", "formats", "modes", "units", "layout", "memory", "definition"},
    "array": {"errors", "output", "formats", "units", "layout", "memory", "engine"},
    "stacks": {"errors", "formats", "modes", "layout", "memory", "definition", "engine", "array"},
    "ops": {"errors", "formats", "modes", "layout", "memory", "engine", "array", "stacks"},
    "products": {"errors", "formats", "modes", "units", "memory", "engine", "array"},
    "rotations": {"errors", "memory", "engine", "array"},
    "recipe": {"errors", "formats", "modes", "units"},
    "linear": {"errors", "formats", "modes", "units", "memory", "engine", "array", "ops", "products"},
    "analysis": {
        "errors", "output", "formats", "modes", "units", "layout", "memory", "definition", "array", "stacks", "ops",
        "products",
    },
    "__init__": {"formats", "modes", "units", "array", "ops", "products", "rotations", "recipe", "linear", "analysis"},
    "interop": {"errors", "output", "formats", "layout", "memory", "array", "stacks", "ops"},
    "prove": {"errors", "formats", "modes", "definition"},
    "conformance": {
        "errors", "output", "formats", "modes", "units", "layout", "reference", "memory", "definition", "array",
        "stacks", "ops", "products", "interop", "prove",
    },
    "emit": {"__init__", "errors", "output", "formats", "modes", "units", "definition"},
    "torch": {"errors", "output", "formats", "modes", "units", "memory", "definition", "engine", "recipe", "interop"},
    "plots": {"errors", "output", "formats", "modes", "layout", "memory", "definition", "ops", "analysis"},
    "selftest": {"formats", "modes", "reference", "memory", "engine"},
    "lab": {
        "__init__", "errors", "output", "formats", "modes", "units", "memory", "recipe", "analysis", "torch", "plots",
    },
    "cli": {
        "errors", "output", "formats", "modes", "units", "layout", "reference", "memory", "definition", "engine",
        "array", "analysis", "interop", "prove", "conformance", "emit", "plots", "selftest", "lab",
    },
    "__main__": {"cli"},
}  # fmt: skip
#: What `lab` may import besides public names: helpers that every folder uses, the type of arrays,
#: and the AMX products.
SHARED = ("mxnum.errors", "mxnum.output", "mxnum.memory.dtypes.Array", "mxnum.torch.amx")
FILES = sorted(PACKAGE.rglob("*.py"))
#: The folders of the engine. The docstring of a folder names the folders that it imports.
ROOMS = ("machine", "rounding", "traversal", "packing", "loops", "quantizing", "products", "rotations", "cuda")
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))
EVERY_FILE = [
    path for folder in ("mxnum", "proofs", "tests", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))
]
#: Markers of unfinished work. Because of the brackets, the pattern does not match its own source.
UNDONE = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X])\b")


def layer(path: Path) -> str:
    """Return the layer of a file of the package."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports of a file, also those inside functions."""
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]


def imported_layers(path: Path) -> set[str]:
    """Return the layers that a file imports."""
    layers = set()
    for node in imports(path):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "mxnum":
            rest = node.module.split(".")[1:]
            named = {alias.name for alias in node.names}
            layers |= {rest[0]} if rest else {name if name in ALLOWED else "__init__" for name in named}
        elif isinstance(node, ast.Import):
            layers |= {a.name.split(".")[1] for a in node.names if a.name.startswith("mxnum.")}
    return layers


def test_imports_go_downward():
    assert {layer(path) for path in FILES} <= set(ALLOWED), "a new layer needs a place in ALLOWED and ARCHITECTURE.md"
    wrong = {path: imported_layers(path) - {layer(path), *ALLOWED[layer(path)]} for path in FILES}
    assert not {str(path.relative_to(PACKAGE)): layers for path, layers in wrong.items() if layers}


def rooms_named(room: str) -> set[str]:
    """Return the folders that a folder of the engine imports, according to its docstring."""
    said = ast.get_docstring(ast.parse((PACKAGE / "engine" / room / "__init__.py").read_text())) or ""
    (sentence,) = re.findall(r"(?:Imports|The modules import) ([^.;]*)[.;]", said)
    return set(re.findall(r"`(\w+)`", sentence))


def rooms_imported(path: Path) -> set[str]:
    """Return the folders and modules of the engine that a file imports."""
    names = set()
    for node in imports(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[2] for name in names if name.startswith("mxnum.engine.")}


def test_the_folders_of_the_engine_are_listed_where_it_begins():
    text = (PACKAGE / "engine" / "__init__.py").read_text()
    assert tuple(re.findall(r"^- `(\w+)`:", text, re.M)) == ROOMS
    assert {path.parent.name for path in (PACKAGE / "engine").glob("*/*.py")} == set(ROOMS)
    beside = {path.stem for path in (PACKAGE / "engine").glob("*.py")} - {"__init__"}
    assert beside <= set(re.findall(r"`(\w+)`", text)), "the docstring does not name a module"
    assert not rooms_imported(PACKAGE / "engine" / "request.py")


@pytest.mark.parametrize("room", ROOMS)
def test_imports_go_one_way_between_folders_of_the_engine(room):
    named = rooms_named(room)
    assert named <= set(ROOMS[: ROOMS.index(room)]), "a folder may import only folders above it in ROOMS"
    for path in (PACKAGE / "engine" / room).glob("*.py"):
        assert rooms_imported(path) <= {*named, room, "request"}, f"{path.name} disagrees with the docstring of {room}"


def test_layers_import_layers_below_them():
    order = list(ALLOWED)
    for name, below in ALLOWED.items():
        assert below <= set(order[: order.index(name)]), f"{name} may import only what stands above it in ALLOWED"


def full_names(path: Path) -> set[str]:
    """Return the names that a file imports from the package, as "module.name"."""
    return {
        f"{node.module}.{alias.name}"
        for node in imports(path)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "mxnum"
        for alias in node.names
    }


def test_lab_imports_public_names():
    listed = {re.split(r"[(:\s]", line)[0] for line in PUBLIC_NAMES.read_text().splitlines()}
    modules = {name.rpartition(".")[0] for name in listed}
    for path in (PACKAGE / "lab").rglob("*.py"):
        outside = {name for name in full_names(path) if not name.startswith("mxnum.lab.")}
        unknown = {name for name in outside if name not in listed | modules and not name.startswith(SHARED)}
        assert not unknown, f"{path.relative_to(PACKAGE)} imports private names"


def test_only_its_commands_import_lab():
    rooms = PACKAGE / "lab", PACKAGE / "cli" / "lab"
    for path in FILES:
        if not any(room in path.parents for room in rooms):
            assert "lab" not in imported_layers(path), path.relative_to(PACKAGE)


def test_numba_is_imported_in_the_engine_and_by_two_compiled_modules_only():
    importing = {
        path
        for path in FILES
        for node in imports(path)
        for alias in node.names
        if ((alias.name if isinstance(node, ast.Import) else node.module) or "").split(".")[0] == "numba"
    }
    beside = {str(path.relative_to(PACKAGE)) for path in importing if layer(path) != "engine"}
    assert beside == {"lab/mlp/kernels.py", "units/identify/compiled.py"}


def test_proofs_see_what_is_computed_only():
    allowed = {"definition", "engine", "formats", "modes", "units", "prove"}
    for path in (ROOT / "proofs").rglob("*.py"):
        if not path.name.startswith("test_"):
            assert imported_layers(path) <= allowed, path.name


def test_benchmarks_see_the_public_api_only():
    allowed = {"__init__", "conformance", "emit", "formats", "output", "stacks", "torch"}
    assert BENCHMARKS
    for path in BENCHMARKS:
        assert imported_layers(path) <= allowed, path.name


def test_nothing_is_marked_as_undone():
    assert not [str(path.relative_to(ROOT)) for path in EVERY_FILE if UNDONE.search(path.read_text())]


#: Calls that compile or run loops.
COMPUTES = re.compile(
    r"mx\.(fake_)?(quantizer?|encode|decode|dot|matmul|shared_scale|hadamard|linear_(for|back)ward)$|.*\.dequantize$"
)


def calls_when_imported(node: ast.AST) -> Iterator[str]:
    """Yield the calls that run when a module is imported, because they are outside functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.Lambda):
            if isinstance(child, ast.Call):
                yield ast.unparse(child.func)
            yield from calls_when_imported(child)


def test_nothing_is_compiled_where_tests_are_collected():
    """Check that importing a test file compiles nothing: each worker imports all test files."""
    computing = {
        str(path.relative_to(ROOT))
        for folder in ("tests", "proofs")
        for path in (ROOT / folder).rglob("*.py")
        if any(map(COMPUTES.match, calls_when_imported(ast.parse(path.read_text()))))
    }
    assert computing == set()


def test_there_are_tests_for_every_folder():
    for folder in {path.parent for path in FILES}:
        mirrored = ROOT / "tests" / folder.relative_to(PACKAGE)
        assert any(mirrored.glob("test_*.py")), f"no tests in {mirrored.relative_to(ROOT)}"
