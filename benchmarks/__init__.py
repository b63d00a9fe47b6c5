"""Measure the time of mxnum as a ratio to the time of a baseline.

``python -m benchmarks`` measures these ratios and writes a page of results.
"""

import os


def limit_libraries() -> None:
    """Limit BLAS and torch to one thread, before numpy is loaded.

    BLAS and torch read their environment variables only once, when they are loaded.
    """
    for library in ("OPENBLAS", "OMP", "MKL", "BLIS", "VECLIB"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
