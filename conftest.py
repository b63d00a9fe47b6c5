"""Configuration that tests and proofs share: tiers, reports of skips, garbage, scheduling."""

import gc
from typing import Any

import pytest

pytest_plugins = ["tests.tiers", "tests.skipped", "tests.compiled", "tests.browser"]

# Compilers and collected tests make millions of objects that stay alive. Fewer garbage collections
# save a twelfth of a run.
gc.set_threshold(100_000, 50, 50)


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, because they stay alive."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that gives each worker neighbouring tests.

    Neighbouring tests run the same loops, so that one worker compiles each loop.
    """
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)
