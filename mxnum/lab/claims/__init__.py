"""The claims of the papers on MX training: what is checked, and the verdicts, computed from what was run.

    from mxnum.lab.claims import reproduce
    reproduce(["I1", "I2", "M9"])

``mxnum lab ledger`` runs every check that needs no more than this machine and minutes, and writes the ledger.
"""

from mxnum.lab.claims.evidence import Comparison, Evidence, Statement, Verdict, Whose
from mxnum.lab.claims.ledger import CLAIMS, Claim
from mxnum.lab.claims.registry import Context, Entry, Report, check, reproduce

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
    "check",
    "reproduce",
]
