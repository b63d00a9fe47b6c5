"""Configuration of tests and proofs: tiers, reports of skips, garbage collection, scheduling."""

import gc
from typing import Any

import pytest

pytest_plugins = ["tests.tiers", "tests.skipped", "tests.compiled", "tests.browser"]

# Compilers and collected tests make millions of objects that stay alive. Collecting garbage less
# often saves a twelfth of the time of a run.
gc.set_threshold(100_000, 50, 50)


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, because they stay alive."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that gives each worker neighbouring tests.

    Neighbouring tests run the same loops, so only one worker has to compile each loop.
    """
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)
