"""Tests that the names of `mxnum.torch` are on its page, and that `import mxnum` loads no torch."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")
import mxnum.torch as mxt

PAGE = (Path(__file__).parents[2] / "docs/reference/torch.md").read_text()


@pytest.mark.parametrize("name", mxt.__all__)
def test_every_name_and_parameter_is_on_the_page(name):
    thing = getattr(mxt, name)
    assert thing.__doc__
    if inspect.isclass(thing):
        assert f".. py:class:: {name}\n" in PAGE
        inside = ("seed_of", "advance", "check_counted", "remember", "place", "sites")
        public = [each for each in vars(thing) if not each.startswith("_") and each not in inside]
        start = PAGE.index(f".. py:class:: {name}\n")
        text = PAGE[start : PAGE.find(".. py:", start + 5)]
        assert all(f"`{each}`" in text for each in public), public
        return
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f".. py:function:: {name}(")]
    said = line[line.index("(") + 1 : -1]
    for parameter in inspect.signature(thing).parameters.values():
        text = parameter.name
        if parameter.default is not parameter.empty:
            default = repr(parameter.default).replace("'", '"').replace("1e-05", "1e-5")
            text += f"={default}"
        assert text in said, text


def test_the_lines_of_the_readme_run(capsys):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (block,) = re.findall(r"```text\n(import torch, mxnum.torch as mxt\n.*?)```", readme, re.S)
    assert len(block.splitlines()) == 6
    exec(block, {})
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "2 modules are emulated: 2 Linear."
    rows = said[7 : said.index("", 7)]  # an empty line separates the table from the legend
    assert {line.split()[0] for line in rows if line.startswith("  ")} == {
        "activations", "weights", "gradients", "weights_backward", "activations_backward", "gradients_for_weights"
    }  # fmt: skip


def test_an_older_torch_is_refused():
    program = "import torch; torch.__version__ = type(torch.__version__)('2.3.1'); import mxnum.torch"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr
    assert said.endswith("needs torch 2.4 or later, not 2.3.1: pip install --upgrade torch\n")


def test_nothing_is_loaded_before():
    program = "import sys, mxnum; mxnum.Recipe; assert 'torch' not in sys.modules and 'mxnum.torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
