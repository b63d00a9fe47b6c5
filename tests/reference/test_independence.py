"""Tests that the oracle shares nothing with the code that it checks."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from mxnum import reference


def test_nothing_is_shared_with_the_fast_code() -> None:
    tree = ast.parse("\n".join(path.read_text() for path in sorted(Path(reference.__file__).parent.glob("*.py"))))
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module is not None
            names = [f"mxnum.{alias.name}" for alias in node.names] if node.module == "mxnum" else [node.module]
            imported.update(names)
        elif isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
    seen = {name for name in imported if name.startswith("mxnum") and not name.startswith("mxnum.reference")}
    assert seen == {"mxnum.errors", "mxnum.formats", "mxnum.modes", "mxnum.units"}
    derived = {"max_code", "infinity_code", "nan_code", "emax", "min_normal", "min_subnormal", "value", "values", "max"}
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not used & derived
    public = [f for name, f in vars(reference).items() if inspect.isfunction(f) and not name.startswith("_")]
    assert all(f.__doc__ for f in public if f.__module__ == reference.__name__)
