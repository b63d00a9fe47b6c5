"""An emulated model in two processes is the model of one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
from tests.torch import worker  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without processes")


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_two_processes_train_the_model_of_one(how, tmp_path):
    command = [sys.executable, str(Path(worker.__file__)), how, str(tmp_path)]
    started = [
        subprocess.Popen([*command, str(rank), "2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]
    said = [process.communicate(timeout=240)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(said)
    one, two = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    alone = worker.model()
    start = {name: value.clone() for name, value in alone.state_dict().items()}
    mxt.emulate(alone, worker.RECIPE, seed=5)
    worker.train(alone, 0, 1)
    for name, value in alone.state_dict().items():
        moved = (value - start[name]).norm()
        assert (one[name] - value).norm() <= 1e-3 * moved, name  # sums in another order
