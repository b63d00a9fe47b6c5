"""``python -m mxnum.experiments``."""

import sys

from mxnum.experiments.command import main

if __name__ == "__main__":
    sys.exit(main())
