"""Conformance tests: test vectors for any language, and verdicts in plain text.

`check` compares a Python callable with the right answers on small cases. `check_arrays` does so on
whole arrays. `check_stochastic` judges a callable that draws its own random bits. `write_vectors`
and `verify` compare through plain text, for implementations in any other language. `answer_vectors`
answers cases that the user writes (``mxnum vectors``, ``verify`` and ``answer`` on the command
line). `CHOICES` names what an implementation may legitimately do otherwise; ``accept=`` takes the
choices that it documents.
"""

from mxnum.conformance.arrays import check_arrays
from mxnum.conformance.check import check
from mxnum.conformance.judging.judge import CHOICES
from mxnum.conformance.judging.report import ConformanceError, Report, StochasticReport
from mxnum.conformance.operations import make_task
from mxnum.conformance.stochastic import check_stochastic
from mxnum.conformance.vectors import answer_vectors, verify, write_vectors

__all__ = [
    "CHOICES",
    "ConformanceError",
    "Report",
    "StochasticReport",
    "answer_vectors",
    "check",
    "check_arrays",
    "check_stochastic",
    "make_task",
    "verify",
    "write_vectors",
]
