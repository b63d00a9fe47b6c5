"""How fast mxnum is, as ratios: ``python -m benchmarks`` measures, prints, saves and writes the page of the docs."""

import os


def limit_libraries() -> None:
    """One thread in BLAS and torch: they read their environment when they are loaded, so this comes before numpy."""
    for library in ("OPENBLAS", "OMP", "MKL", "BLIS", "VECLIB"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
