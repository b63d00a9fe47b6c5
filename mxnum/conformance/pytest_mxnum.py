"""The pytest plugin: fixtures for users who test kernels.

The plugin is installed as the top-level module ``pytest_mxnum``, so that loading the plugin does
not import mxnum and numpy.
"""

from typing import Any

import pytest


@pytest.fixture  # type: ignore[untyped-decorator]
def mx_check() -> Any:
    """Return `mxnum.conformance.check`, which a test calls on its kernel.

    An example is ``mx_check(my_kernel, format="mxfp8_e4m3", operation="quantize")``.
    """
    from mxnum.conformance import check

    return check


@pytest.fixture  # type: ignore[untyped-decorator]
def mx_check_arrays() -> Any:
    """Return `mxnum.conformance.check_arrays`, which a test calls on a kernel of whole arrays."""
    from mxnum.conformance import check_arrays

    return check_arrays
