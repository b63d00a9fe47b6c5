"""What tests and proofs have in common: their tiers, notes of what was skipped and compiled, and who runs which."""

from typing import Any

import pytest

pytest_plugins = ["tests.tiers", "tests.skipped", "tests.compiled"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker tests that stand beside each other: they run the same loops, which one worker then compiles."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)
