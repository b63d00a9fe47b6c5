"""Does for the pytest-benchmark cases what `python -m benchmarks` does before numpy is loaded."""

import benchmarks

benchmarks.limit_libraries()
