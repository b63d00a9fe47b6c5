"""The claims of the papers on MX training: checks, and verdicts computed from stored runs.

    from mxnum.lab.claims import reproduce
    reproduce(["I1", "I2", "M9"])

`rows` has one file for each claim. ``mxnum lab ledger`` checks every claim against the stored
results, and writes the ledger.
"""

from mxnum.lab.claims.claim import Claim, Context
from mxnum.lab.claims.evidence import Comparison, Evidence, Statement, Verdict, Whose
from mxnum.lab.claims.rows import CLAIMS
from mxnum.lab.claims.verdicts import Entry, Report, reproduce

__all__ = [
    "CLAIMS",
    "Claim",
    "Comparison",
    "Context",
    "Entry",
    "Evidence",
    "Report",
    "Statement",
    "Verdict",
    "Whose",
    "reproduce",
]
