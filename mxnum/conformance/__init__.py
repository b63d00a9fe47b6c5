"""Conformance: test vectors for any language, verdicts in words, and a table of what can be installed today.

`check` compares a Python callable with the right answers. `write_vectors` and `verify` do the same through plain text
for any other language (``mxnum vectors`` and ``mxnum verify`` on the command line). `CHOICES` names what an
implementation may legitimately do otherwise; a `Profile` says which of them it documents.
"""

from mxnum.conformance.check import ConformanceError, check
from mxnum.conformance.judge import CHOICES
from mxnum.conformance.stream import verify, write_vectors
from mxnum.conformance.task import OPERATIONS, Task, make_task
from mxnum.conformance.verdict import Profile, Report

__all__ = [
    "CHOICES",
    "OPERATIONS",
    "ConformanceError",
    "Profile",
    "Report",
    "Task",
    "check",
    "make_task",
    "verify",
    "write_vectors",
]
