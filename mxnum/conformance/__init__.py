"""Conformance tests: test vectors for any language, and verdicts in plain text.

`check` compares a Python callable with the right answers on small cases. `check_arrays` compares it
on whole arrays. `check_stochastic` judges a callable that draws its own random bits.
`write_vectors` and `verify` check an implementation in any other language through plain text
(``mxnum vectors`` and ``mxnum verify``). `answer_vectors` computes the right answers to cases that
the user writes (``mxnum answer``). `CHOICES` lists the differences from the right answers that a
standard permits. Pass the choices that an implementation documents as ``accept=``.
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
