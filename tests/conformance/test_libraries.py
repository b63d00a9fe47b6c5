from __future__ import annotations

import numpy as np
import pytest

from mxnum.conformance.calling import Implementation
from mxnum.conformance.cases.batches import cases
from mxnum.conformance.libraries import LIBRARIES, peers, version
from mxnum.conformance.operations import make_task


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_conversion_answers(library):
    if version(library) is None:
        pytest.skip(f"{library} is not installed")
    listed = peers(library)
    assert len({(p.operation, p.format, p.call, str(p.claims)) for p in listed}) == len(listed) > 0
    for peer in listed[:: max(1, len(listed) // 6)]:
        task = make_task(peer.operation, peer.format, **peer.claims)
        inputs = {name: column[:70] for name, column in next(cases(task)).items()}
        answers = Implementation(peer.function).answers(task, inputs)
        assert {len(column) for column in answers.values()} == {70}


def test_what_is_not_installed_has_no_version():
    assert version("no-such-package") is None
    assert np.__version__.startswith(version("numpy"))
