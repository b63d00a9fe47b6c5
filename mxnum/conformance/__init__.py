"""Conformance tests: test vectors for any language, and verdicts in plain text.

`check` compares a Python callable with the right answers on small cases. `check_arrays` compares a
Python callable with the right answers on whole arrays. `check_stochastic` judges a callable that
draws its own random bits. `write_vectors` and `verify` exchange cases and answers as plain text,
for implementations in any other language. `answer_vectors` computes the right answers to cases that
the user writes. The commands ``mxnum vectors``, ``mxnum verify`` and ``mxnum answer`` do the work
of `write_vectors`, `verify` and `answer_vectors` on the command line. `CHOICES` describes the
choices that the standard leaves to an implementation. If an implementation documents some of these
choices, pass their names as ``accept=``. `identify` finds out how a matrix unit adds.

`prove` checks an implementation for all inputs with a solver (``mxnum prove``). `prove` reads
Verilog with yosys, C with clang, LLVM IR, PTX, functions of numba, and functions in the subset of
Python that `mxnum.definition.word` describes.
"""

from mxnum.conformance.arrays import check_arrays
from mxnum.conformance.calling import in_place
from mxnum.conformance.check import check
from mxnum.conformance.judging.judge import CHOICES
from mxnum.conformance.judging.report import ConformanceError, Report, StochasticReport
from mxnum.conformance.operations import make_task
from mxnum.conformance.proving import prove
from mxnum.conformance.stochastic import check_stochastic
from mxnum.conformance.vectors import answer_vectors, verify, write_vectors
from mxnum.prove.verdict import Counterexample, Proof, ProofPart
from mxnum.units.identify import identify

__all__ = [
    "CHOICES",
    "ConformanceError",
    "Counterexample",
    "Proof",
    "ProofPart",
    "Report",
    "StochasticReport",
    "answer_vectors",
    "check",
    "check_arrays",
    "check_stochastic",
    "identify",
    "in_place",
    "make_task",
    "prove",
    "verify",
    "write_vectors",
]
