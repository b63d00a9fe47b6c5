"""Declare the claims. Each claim has a file with its statement, source, check and figures.

Importing this package imports the file of every claim. The ledger lists the claims of a paper in
the order of their files, and the papers in the order of `SOURCES`.
"""

import importlib
import pkgutil

from mxnum.lab.claims.claim import CLAIMS, SOURCES

__all__ = ["CLAIMS"]

for _row in sorted(pkgutil.iter_modules(__path__), key=lambda row: ([*SOURCES].index(row.name[0].upper()), row.name)):
    importlib.import_module(f"{__name__}.{_row.name}")
