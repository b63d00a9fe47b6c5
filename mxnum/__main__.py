"""``python -m mxnum``: the command line."""

import sys

from mxnum.cli.main import main

sys.exit(main())
