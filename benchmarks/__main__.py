"""The entry point of ``python -m benchmarks``."""

import signal
import sys

import benchmarks

if __name__ == "__main__":
    # SIGTERM acts like Ctrl-C, so finished measurements are kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    benchmarks.limit_libraries()
    from benchmarks.command import main

    sys.exit(main())
