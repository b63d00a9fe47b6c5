"""Entry point."""

import signal
import sys

import benchmarks

if __name__ == "__main__":
    # Being told to end is like Ctrl-C: what is measured is kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    benchmarks.limit_libraries()
    from benchmarks.command import main

    sys.exit(main())
