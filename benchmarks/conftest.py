"""Limit libraries to one thread before numpy is loaded, as `python -m benchmarks` does."""

import benchmarks

benchmarks.limit_libraries()
