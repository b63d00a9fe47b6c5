"""Entry point."""

import sys

import benchmarks

if __name__ == "__main__":
    benchmarks.limit_libraries()
    from benchmarks.command import main

    sys.exit(main())
