"""Run the tests of the folder `cuda` in numba's simulator, in a separate process."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
needs_numba_cuda = pytest.mark.skipif(
    importlib.util.find_spec("numba_cuda") is None, reason='numba-cuda is missing: pip install -e ".[cuda]"'
)


@needs_numba_cuda
@pytest.mark.skipif(os.environ.get("NUMBA_ENABLE_CUDASIM") == "1", reason="in the simulator already")
def test_the_simulator_suite():
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "pytest", str(HERE / "cuda"), "-q", "-p", "no:cacheprovider"]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parents[1])
    last = answer.stdout.strip().splitlines()[-1]
    assert answer.returncode == 0, answer.stdout[-4000:]
    passed = re.search(r"(\d+) passed", last)
    assert passed is not None
    assert int(passed[1]) > 200, answer.stdout[-4000:]  # one test is skipped if torch is missing


def test_only_one_module_imports_numba_cuda():
    package = HERE.parents[1] / "mxnum"
    importing = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "numba.cuda" in path.read_text() or "import cuda" in path.read_text().replace("driver import cuda", "")
    ]
    texts = {name: (package / name).read_text() for name in importing}
    importers = [name for name, text in texts.items() if "from numba import cuda" in text or "from numba.cuda" in text]
    assert importers == ["engine/cuda/driver.py"]
