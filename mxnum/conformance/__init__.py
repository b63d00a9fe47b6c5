"""Conformance tests: test vectors for any language, and verdicts in plain text.

`check` compares a Python callable with the right answers on small cases. `check_arrays` does so on
whole arrays. `check_stochastic` judges a callable that draws its own random bits. `write_vectors`
and `verify` compare through plain text, for implementations in any other language. `answer_vectors`
answers cases that the user writes (``mxnum vectors``, ``verify`` and ``answer`` on the command
line). `CHOICES` names what an implementation may legitimately do otherwise; ``accept=`` takes the
choices that it documents. `identify` says how a matrix unit adds.

`prove` asks a solver instead, and answers for all inputs (``mxnum prove``). It reads Verilog with
yosys, C with clang, LLVM IR, PTX, functions of numba and Python functions in the dialect of
`mxnum.definition.word`.
"""

from mxnum.conformance.arrays import check_arrays
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
    "make_task",
    "prove",
    "verify",
    "write_vectors",
]
