"""Entry point."""

import signal
import sys

import benchmarks

if __name__ == "__main__":
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # being told to end is like Ctrl-C: what is measured is kept
    benchmarks.limit_libraries()
    from benchmarks.command import main

    sys.exit(main())
