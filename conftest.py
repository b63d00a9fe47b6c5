"""What tests and proofs have in common: their tiers, notes of what was skipped and compiled, and who runs which."""

import gc
from typing import Any

import pytest

pytest_plugins = ["tests.tiers", "tests.skipped", "tests.compiled"]

# Compilers and collected tests make millions of objects that stay: looking for cycles among them
# again and again took a twelfth of a run.
gc.set_threshold(100_000, 50, 50)


def pytest_collection_finish() -> None:
    """What was collected is not looked through any more."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker tests that stand beside each other: they run the same loops, which one worker then compiles."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)
