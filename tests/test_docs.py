"""Tests of the documentation: all code runs, and every public name and page is listed.

The documentation build executes the cells of pages; the tests in this file check all other code.
"""

from __future__ import annotations

import importlib
import os
import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import mxnum as mx
from mxnum.lab.claims import CLAIMS
from tests.public_names import MODULES, public_names

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if not {"_build", "results"} & set(page.parts))
#: Pages at the root of the repository.
FRONT = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
#: The languages of fenced blocks, each with the test that runs the blocks of this language.
LANGUAGES = {
    "{code-cell}": "the build of the documentation",
    "{eval-rst}": "the build of the documentation",
    "{toctree}": "the build of the documentation",
    "{figure}": "the build of the documentation",
    "{glossary}": "the build of the documentation",
    "{include}": "the build of the documentation",
    "{note}": "nobody: it is text",
    "c": "tests/cli/test_command_verify.py",
    "js": "tests/emit",
    "systemverilog": "tests/cli/test_command_verify.py",
    "toml": "tests/lab/mlp",
    "python": "this file, or tests/test_examples.py",
    "sh": "this file",
    "text": "no test, because the block shows what a program printed",
}
#: Modules that Python blocks may import, each with the optional package that it needs.
OPTIONAL = {
    **{name: name for name in ("torch", "torchao", "transformers", "onnx", "dask", "cupy", "triton", "cocotb", "jax")},
    "mxnum.lab.language_model": "torch",
    "mxnum.conformance import prove": "z3",
}
#: Replacements that shorten code blocks which would compute for minutes. All other code blocks run
#: unchanged.
SHORTER = {
    "Experiment(rate=1.2e-2": "Experiment(steps=20, width=32, batch=32, rate=1.2e-2",
    "measure_every=250": "measure_every=10",
}


def fences(page):
    """Yield (line, language, text) for each fenced block of a page."""
    lines = page.read_text().splitlines()
    start = None
    for at, line in enumerate(lines):
        fence = re.match(r"(`{3,})(.*)$", line)
        if fence and start is None:
            start, ticks, language = at, fence[1], fence[2].strip()
        elif start is not None and line.strip() == ticks:
            yield start + 1, language.split()[0] if language else "", "\n".join(lines[start + 1 : at])
            start = None
    assert start is None, f"{page}: the block at line {start} does not end"


def blocks(language, pages=(*PAGES, *FRONT)):
    """Return the blocks of a language on some pages, as parameters of a test."""
    return [
        pytest.param(text, id=f"{page.relative_to(ROOT)}:{line}")
        for page in pages
        for line, found, text in fences(page)
        if found == language
    ]


@pytest.mark.parametrize("page", [*PAGES, *FRONT], ids=lambda p: str(p.relative_to(ROOT)))
def test_every_block_has_a_language_that_is_tested(page):
    for line, language, _ in fences(page):
        assert language in LANGUAGES, f"line {line}: {language!r}"
        if language == "{code-cell}":  # the build runs cells only in pages with a jupytext header
            assert page.read_text().startswith("---\njupytext:"), "the page has no jupytext header"


@pytest.mark.parametrize("text", blocks("python", PAGES))
def test_blocks_of_python(text, tmp_path):
    for name, package in OPTIONAL.items():
        if re.search(rf"^(import|from) (mxnum.interop import )?{name}\b", text, re.M):
            pytest.importorskip(package, reason=f"{package} is not installed")
    if "import cupy" in text:
        runtime = pytest.importorskip("cupy").cuda.runtime
        try:
            runtime.getDeviceCount()
        except runtime.CUDARuntimeError as problem:
            pytest.skip(f"no GPU: {problem}")
    if "from numba import cuda" in text and os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
        pytest.skip("no GPU: NUMBA_ENABLE_CUDASIM=1 NUMBA_DISABLE_JIT=1 runs it in numba's simulator")
    if "import triton" in text:
        if os.environ.get("TRITON_INTERPRET") != "1" and not importlib.import_module("torch").cuda.is_available():
            pytest.skip("no GPU: TRITON_INTERPRET=1 runs it in Triton's interpreter")
        (tmp_path / "block.py").write_text(text)  # Triton reads the source of kernels from a file
        runpy.run_path(str(tmp_path / "block.py"))
        return
    if 'device="cuda"' in text and not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("no GPU")
    for long, short in SHORTER.items():
        text = text.replace(long, short)
    space = {"my_kernel": lambda x: mx.quantize(x, "mxfp4_e2m1", scale_rule="even")}
    exec(text, space)
    for name in [name for name in space if name.startswith("test_")]:
        from mxnum.conformance import check

        def as_pair(x, kernel=space["my_kernel"]):
            return kernel(x).codes, kernel(x).scales

        space["my_kernel"] = as_pair
        space[name](mx_check=check)


@pytest.mark.parametrize("text", blocks("python", FRONT))
def test_blocks_of_python_in_front_are_examples_that_doctest_runs(text):
    assert text.startswith(">>> ")


def commands():
    """Return the commands on the pages: lines of shell blocks, and commands in backticks."""
    found = []
    for page in (*PAGES, *FRONT):
        where = str(page.relative_to(ROOT))
        for _, language, text in fences(page):
            if language == "sh":
                joined = re.sub(r"\\\n\s*", " ", text)
                found += [(where, line) for line in joined.splitlines() if line.strip()]
            elif language == "{code-cell}" and text.startswith("%%bash"):
                found += [(where, line) for line in text.splitlines() if "-m mxnum " in line]
        prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
        found += [(where, text) for text in re.findall(r"`((?:mxnum|python -m) [^`]+)`", " ".join(prose.split()))]
    return sorted(set(found))


def split(line):
    """Yield the commands of a line, each as a list of words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words, command = list(lexer), []
    for word in [*words, ";"]:
        if set(word) <= set("|&;"):
            if command:
                yield command
            command = []
        else:
            command.append(word)


def source_of(module):
    """Return the source text of a module or package of the repository."""
    path = ROOT / Path(*module.split("."))
    return "".join(f.read_text() for f in path.rglob("*.py")) if path.is_dir() else path.with_suffix(".py").read_text()


@pytest.mark.parametrize(("where", "line"), commands())
def test_commands_exist_with_their_options(where, line):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for words in split(line):
        words = [word for word in words if "=" not in word or word.startswith("-")] or words
        program, *rest = words
        if program == ".":
            continue
        name = program.split("/")[-1]
        if name.startswith("python") and rest[:1] == ["-m"]:
            module, *rest = rest[1:]
            if module == "mxnum":
                name = "mxnum"
            elif module == "pip":
                name = "pip"
            elif module in ("pytest", "venv", "sphinx", "build", "twine"):
                continue
            else:
                text = source_of(module)
                for option in (word.split("=")[0] for word in rest if word.startswith("--")):
                    assert f'"{option}"' in text or option == "--help", f"{where}: {option} in {line!r}"
                continue
        if name == "pip":
            for extra in re.findall(r"\[([\w,]+)\]", line):
                assert set(extra.split(",")) <= set(extras), f"{where}: {line!r}"
        elif name == "mxnum":
            takes_options(where, line, rest)
        elif name.startswith("python"):
            assert (ROOT / rest[0]).exists() or rest[0] == "-c", f"{where}: {line!r}"
        else:
            assert name in ("ruff", "mypy", "sed", "head", "tail", "grep", "iverilog", "vvp", "mine", "e2m1"), (
                f"{where}: {line!r}"
            )


def takes_options(where, line, words):
    """Assert that mxnum's command line has a command with the given options."""
    pytest.importorskip("typer", reason="the extra cli is not installed")
    import typer.main

    from mxnum.cli.app import app_of

    group = typer.main.get_command(app_of([]))
    if not words or words[0].startswith("-"):
        return
    command = group.commands[words[0]]
    if hasattr(command, "commands") and len(words) > 1:  # a group
        command, words = command.commands[words[1]], words[1:]
    known = command.params
    options = {option for parameter in known for option in (*parameter.opts, *parameter.secondary_opts)}
    options |= {"--help", "-h"}
    for word in words[1:]:
        if word == "--":
            break
        if re.match(r"--?[a-z]", word):
            assert word.split("=")[0] in options, f"{where}: {word} in {line!r}"


REFERENCE = (DOCS / "reference" / "api.md").read_text()
#: The public modules that the page api.md documents. Other pages document `mxnum.torch` and
#: `mxnum.lab.language_model`.
PUBLIC = [name for name in MODULES if name not in ("mxnum.torch", "mxnum.lab.language_model")]


def is_documented(module, name):
    """Return True if the page api.md documents a name of a module."""
    whole = re.search(rf"automodule:: {re.escape(module)}\n(?:   .*\n)*?   :members:(.*)\n(   :exclude.*)?", REFERENCE)
    if whole and (not whole[1].strip() or name in re.split(r"[ ,]+", whole[1])):
        return True
    return re.search(rf"^\.\. (?:auto\w+|py:data):: (mxnum|{re.escape(module)})\.{name}$", REFERENCE, re.M) is not None


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(module):
    if module == "mxnum.conformance.strategies":
        pytest.importorskip("hypothesis")
    loaded = importlib.import_module(module)
    missing = [
        name
        for name in public_names(loaded)
        if not (name == "__version__" or f"{module}.{name}" in PUBLIC or is_documented(module, name))
    ]
    assert missing == []


def test_a_name_that_is_missing_is_noticed():
    assert not is_documented("mxnum", "quantise")
    assert is_documented("mxnum", "quantize")
    assert is_documented("mxnum.interop.swizzle", "swizzle_scales")
    assert not is_documented("mxnum.interop.safetensors", "DTYPES")


def test_the_figures_are_what_their_command_draws(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    readme = (ROOT / "README.md").read_text()
    assert "`python docs/figure.py`" in readme
    monkeypatch.setattr(sys, "argv", ["figure.py", str(tmp_path)])
    exec((DOCS / "figure.py").read_text(), {"__file__": str(DOCS / "figure.py")})
    for name in ("figure.svg", "runaway.svg"):
        assert f"](docs/{name})" in readme
        drawn, kept = ((path / name).read_text() for path in (tmp_path, DOCS))
        numbers = [np.array(re.findall(r"-?\d+\.\d+", text), float) for text in (drawn, kept)]
        if re.search(r"Matplotlib v\S+", drawn)[0] == re.search(r"Matplotlib v\S+", kept)[0]:
            assert np.allclose(*numbers, atol=1e-4)


def test_the_changelog_is_a_page():
    assert "../CHANGELOG.md" in (DOCS / "changelog.md").read_text()
    assert "\nchangelog\n" in (DOCS / "index.md").read_text()


def test_shortened_blocks_occur_in_the_pages():
    text = "".join(page.read_text() for page in PAGES)
    assert all(long in text for long in SHORTER)


def test_an_id_of_the_ledger_is_a_link_to_its_row(monkeypatch):
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    monkeypatch.syspath_prepend(str(DOCS))
    linked = importlib.import_module("ledger_links").linked
    parts = linked("I6 and M10, not B99, x.I6 or NVFP4.", "claims.html")
    assert "".join(part.astext() for part in parts) == "I6 and M10, not B99, x.I6 or NVFP4."
    assert [part["refuri"] for part in parts if hasattr(part, "attributes")] == ["claims.html#i6a", "claims.html#m10"]
    rows = (DOCS / "lab" / "claims.md").read_text()
    assert set(re.findall(r'<a id="(\w+)"></a>', rows)) == {claim.lower() for claim in CLAIMS}


def test_every_extra_is_on_the_page_about_the_installation():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    rows = re.findall(r"^\| (`.*?) \|", (DOCS / "howto" / "install.md").read_text(), re.M)
    assert {name for row in rows for name in re.findall(r"`(.*?)`", row)} == set(extras)


#: Pages that programs write; their tables may be wider than 100 columns.
GENERATED = ("proofs/LEDGER.md", "docs/lab/claims.md", "docs/benchmarks.md", "docs/reference/conformance.md")


@pytest.mark.parametrize("page", sorted(set(ROOT.glob("*.md")) | set(PAGES)), ids=lambda p: str(p.relative_to(ROOT)))
def test_prose_wraps_at_100_columns(page):
    if str(page.relative_to(ROOT)) in GENERATED:
        pytest.skip("a program writes this page")
    fenced = {n for line, _, text in fences(page) for n in range(line, line + text.count("\n") + 1)}
    prose = [(n, line) for n, line in enumerate(page.read_text().splitlines()) if n not in fenced]
    wide = [n + 1 for n, line in prose if len(line) > 100 and not line.lstrip().startswith(("|", "#", "$$", "```"))]
    assert not wide, f"{page.name}, lines {wide}"
