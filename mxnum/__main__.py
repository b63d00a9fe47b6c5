"""``python -m mxnum`` runs the command line."""

import sys

from mxnum.cli.main import main

sys.exit(main())
