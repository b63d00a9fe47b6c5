"""``python -m mxnum.claims``."""

import sys

from mxnum.claims.ledger_command import main

if __name__ == "__main__":
    sys.exit(main())
