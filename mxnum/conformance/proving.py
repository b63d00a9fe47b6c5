"""Prove that an implementation computes an operation of the definition for all inputs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mxnum import errors
from mxnum.prove.claims import DECIDES, OPERATIONS, Claim, make_claim
from mxnum.prove.verdict import Counterexample, Proof, ProofPart

#: The fraction of the time limit that one question about all inputs may take. If the solver needs
#: more time, the question is split by classes of inputs.
WHOLE = 0.5
#: The time limit, in seconds, of each search for a counterexample that is easy to read.
SIMPLE = 3.0


def prove(
    implementation: Any,
    operation: str,
    format: Any,
    *,
    function: str | None = None,
    ports: Mapping[str, str | int] | None = None,
    parameters: Mapping[str, int] | None = None,
    latency: int = 0,
    include: Sequence[Any] = (),
    seconds: float = 300,
    **settings: Any,
) -> Proof:
    """Prove that an implementation equals the definition for all inputs, or find a counterexample.

    Parameters
    ----------
    implementation
        The path of a file, a list of paths, or a Python function. The files may hold Verilog or
        SystemVerilog (``.v``, ``.sv``), C or C++ (``.c``, ``.h``, ``.cpp``, ...), LLVM IR
        (``.ll``), PTX (``.ptx``) or Python (``.py``). A Python file is executed. A Python function
        must be compiled by numba, or be written in the subset of Python that
        `mxnum.definition.word` describes.
    operation
        ``"encode"``, ``"decode"``, ``"scale"``, ``"quantize"`` or ``"dot"``.
    format
        An MX format or an element format.
    function
        The name of the module or function to prove, if the files have several.
    ports
        For each port or parameter of the implementation: the input or output of the operation to
        which it is bound, or a constant. An example is ``{"in_data": "x", "enable": 1}``. Inputs
        are ``x``, ``scale`` and ``random`` (encode), ``code`` and ``scale`` (decode), ``amax``
        (scale), ``x`` (quantize), ``a``, ``b``, ``a_scale`` and ``b_scale`` (dot). A scale that is
        bound to no port is 1.
    parameters
        Parameters of a Verilog module, or macros for C.
    latency
        Number of cycles from inputs to outputs, for a pipeline.
    include
        Folders that are searched for included files.
    seconds
        The time limit of the solver.
    settings
        ``source`` (the type of the numbers, or of decode's result), ``rounding``, ``overflow``,
        ``scale_rule``, ``nonfinite`` and ``block`` (quantize), ``sr_bits``, ``terms`` (dot),
        ``assume`` (restrictions of the inputs) and ``accept`` (further answers that count as
        right). ``assume`` and ``accept`` may each be a name or a sequence of names.

    Returns
    -------
    Proof
        The verdict ``"proved"``, ``"refuted"`` with a counterexample, or ``"open"``.
        ``bool(proof)`` is True only if the implementation is proved.
    """
    errors.package("z3", "prove")
    from mxnum.prove.circuit import bind
    from mxnum.prove.readers import read

    errors.require(seconds > 0, "seconds", "positive", seconds)
    for name in settings:
        if operation not in DECIDES.get(name, tuple(OPERATIONS)) and operation in OPERATIONS:
            accepted = errors.joined(DECIDES[name])
            raise ValueError(f"Argument {name!r} must be left out for {operation!r}; it is for {accepted}.")
    claim = make_claim(operation, format, **settings)
    ports = dict(ports or {})
    circuit = read(implementation, claim, function, ports, parameters, latency, [Path(each) for each in include])
    binding = bind(circuit, claim, ports)
    return _Prover(claim, circuit, binding, seconds).proof()


class _Prover:
    """A prover of one claim, which asks solvers questions until the time limit."""

    def __init__(self, claim: Claim, circuit: Any, binding: Any, seconds: float):
        import z3

        from mxnum.prove import circuit as circuits
        from mxnum.prove.claims import hypotheses

        self.claim, self.circuit, self.binding = claim, circuit, binding
        self.deadline = time.perf_counter() + seconds
        self.parts: list[ProofPart] = []
        self.symbols = {each.name: z3.BitVec(each.name, each.width) for each in binding.taken(claim)}
        self.answer = circuit.run(circuits.given(circuit, binding, self.symbols))
        self.found: dict[str, Any] = {}
        self.promises = list(self.answer.obligations)
        for name, port in sorted(binding.outputs.items(), key=lambda pair: pair[1].first):
            value, promises = circuits.narrowed(circuit, name, port, self.answer.outputs[name])
            before = self.found.get(port.quantity.name)
            self.found[port.quantity.name] = value if before is None else z3.Concat(value, before)
            self.promises += promises
        self.premises = [*self.answer.premises, *hypotheses(claim, self.symbols)]

    def proof(self) -> Proof:
        """Ask all questions and return the proof with its verdict."""
        example = self.decided()
        verdicts = {part.verdict for part in self.parts}
        verdict: Any = "refuted" if example else "open" if "open" in verdicts else "proved"
        taken = {each.name for each in self.binding.taken(self.claim)}
        scales = [each.name for each in self.claim.inputs if each.default is not None and each.name not in taken]
        notes = [f"The implementation has no input for {errors.joined(scales)}, so the scale is 1."] if scales else []
        notes += [
            f"Input {name!r} is bound to the operation's input {port.quantity.name!r}."
            for name, port in self.binding.inputs.items()
            if not isinstance(port, int) and port.quantity.default is not None and port.quantity.name != name
        ]
        held = [f"{name} = {value}" for name, value in self.binding.inputs.items() if isinstance(value, int)]
        notes += [f"Held constant: {', '.join(held)}."] if held else []
        assumptions = (*self.claim.assumptions, *notes, *self.circuit.notes)
        return Proof(self.claim, self.circuit.name, verdict, tuple(self.parts), assumptions, example)

    def decided(self) -> Counterexample | None:
        """Ask about all inputs at once, or in parts if time runs out; return any counterexample."""
        import z3

        from mxnum.prove.claims import agrees
        from mxnum.prove.solvers import solve

        if self.claim.operation == "quantize":
            return self.decided_block()
        right = definition(self.claim, self.symbols)
        (output,) = self.claim.outputs
        goal = z3.And(agrees(self.claim, output, self.found[output.name], right), *self.promises)
        if solve(self.premises, [], self.deadline - time.perf_counter()).verdict == "unsat":
            raise ValueError(f"The premises about {self.circuit.name} contradict each other, so nothing is proved.")
        if self.claim.operation == "dot" and self.proved_by_products():
            return None
        budget = self.deadline - time.perf_counter()
        verdict, values = self.asked("all inputs", goal, WHOLE * budget)
        if verdict == "open":
            self.parts.clear()
            parts = self.split()
            for i, (name, condition) in enumerate(parts):
                left = max(0.0, self.deadline - time.perf_counter()) / (len(parts) - i)
                verdict, values = self.asked(name, z3.Implies(condition, goal), left)
                if verdict == "refuted":
                    break
        return self.counterexample(goal, self.simplest(goal, values)) if verdict == "refuted" else None

    def proved_by_products(self) -> bool:
        """Return True if each product is proved, and the sum is proved for arbitrary products."""
        import z3

        from mxnum.prove.claims import agrees
        from mxnum.prove.sums import cut

        (output,) = self.claim.outputs
        parts = cut(self.claim, self.symbols, self.found[output.name], self.answer.premises, self.promises)
        if parts is None:
            return False
        questions: list[tuple[str, list[Any], Any]] = [("each product", [], parts.products)]
        summed = z3.And(agrees(self.claim, output, parts.found, parts.right), *parts.promises)
        questions.append(("the sum of all products", parts.premises, summed))
        for name, premises, goal in questions:
            verdict, _ = self.asked(name, goal, WHOLE * (self.deadline - time.perf_counter()), premises)
            if verdict != "proved":
                self.parts.clear()
                return False
        return True

    def decided_block(self) -> Counterexample | None:
        """Ask the solver about a block's scale, then about each element; return any counterexample.

        The questions about elements take the implementation's scale as given. Each condition that
        excludes undefined behaviour is a separate question, because solvers need much longer for
        all conditions together.
        """
        from mxnum.prove.claims import agrees, element_of

        scale, codes = self.claim.outputs
        element = element_of(self.claim)
        right = definition(replace(self.claim, inputs=self.claim.inputs[:1], outputs=(scale,)), self.symbols)
        questions = [("the scale", self.found["scale"] == right)]
        questions += [(f"no undefined behaviour, condition {i + 1}", each) for i, each in enumerate(self.promises)]
        numbers = {each.name: each.parts(self.symbols[each.name]) for each in self.claim.inputs}
        for i, code in enumerate(codes.parts(self.found["codes"])):
            given = {name: parts[i] for name, parts in numbers.items()} | {"scale": self.found["scale"]}
            questions.append((f"element {i}", agrees(element, element.outputs[0], code, definition(element, given))))
        for i, (name, goal) in enumerate(questions):
            # The question about the scale takes longest, because the scale depends on all numbers.
            share = WHOLE if i == 0 else 1 / (len(questions) - i)
            verdict, values = self.asked(name, goal, share * max(0.0, self.deadline - time.perf_counter()))
            if verdict == "refuted":
                return self.counterexample(goal, self.simplest(goal, values))
        return None

    def asked(
        self, name: str, goal: Any, seconds: float, premises: Sequence[Any] | None = None
    ) -> tuple[str, dict[str, int]]:
        """Ask a solver one question and record the answer."""
        import z3

        from mxnum.prove.solvers import solve

        given = self.premises if premises is None else premises
        answer = solve([*given, z3.Not(goal)], list(self.symbols.values()), seconds)
        verdict: Any = {"sat": "refuted", "unsat": "proved", "unknown": "open"}[answer.verdict]
        self.parts.append(ProofPart(name, verdict, answer.solver, answer.seconds))
        return verdict, answer.values

    def simplest(self, goal: Any, values: dict[str, int]) -> dict[str, int]:
        """Return a counterexample that is easy to read, or `values` if none is found quickly."""
        import z3

        from mxnum.prove.solvers import solve

        simple: list[Any] = []
        for each in self.claim.inputs:
            if each.name in self.symbols and each.default is not None:
                simple.append(self.symbols[each.name] == each.default)
            elif each.name in self.symbols and each.number is not None:
                ones = [
                    z3.Extract(at + each.bits - 1, at, self.symbols[each.name])
                    for at in range(0, each.width, each.bits)
                ]
                sign = 1 << (each.bits - 1)
                simple += [z3.ULE(one & (sign - 1), each.number.max_code) for one in ones]
                simple += [one & ((1 << max(0, each.number.mantissa_bits - 8)) - 1) == 0 for one in ones]
        for count in range(len(simple), 0, -1):
            asked = [*self.premises, z3.Not(goal), *simple[:count]]
            answer = solve(asked, list(self.symbols.values()), SIMPLE)
            if answer.verdict == "sat":
                return answer.values
        return values

    def split(self) -> list[tuple[str, Any]]:
        """Return classes that cover all inputs: eight ranges of exponents, or a single class."""
        import z3

        first = next(each for each in self.claim.inputs if each.name in self.symbols)
        value, number = self.symbols[first.name], first.number
        if number is None or first.count > 1 or number.exponent_bits < 3:
            return [("all inputs", z3.BoolVal(True))]
        low = number.mantissa_bits
        top = z3.Extract(low + number.exponent_bits - 1, low + number.exponent_bits - 3, value)
        step = 1 << (number.exponent_bits - 3)
        return [(f"|{first.name}| with exponent field {i * step} to {(i + 1) * step - 1}", top == i) for i in range(8)]

    def counterexample(self, goal: Any, values: Mapping[str, int]) -> Counterexample:
        """Return a counterexample: the inputs `values`, the right answer, and a wrong answer."""
        from mxnum.conformance.counterexample import described

        right = concrete(self.claim, values)
        found = self.answers(goal, values)
        return described(self.claim, values, right, found)

    def answers(self, goal: Any, values: Mapping[str, int]) -> dict[str, int | None]:
        """Return the implementation's answers to `values` by output.

        The answers are None if the behaviour is undefined.
        """
        import z3

        from mxnum.prove.solvers import solve

        fixed = [*self.answer.premises, *(symbol == values[name] for name, symbol in self.symbols.items())]
        probes = {name: z3.BitVec(f"answer_{name}", value.size()) for name, value in self.found.items()}
        equal = [probes[name] == value for name, value in self.found.items()]
        answer = solve([*fixed, *self.promises, z3.Not(goal), *equal], list(probes.values()), 60)
        return {name: answer.values.get(str(probe)) for name, probe in probes.items()}


def definition(claim: Claim, symbols: Mapping[str, Any]) -> Any:
    """Return the definition's answer to symbolic inputs, as wide as the output."""
    import z3

    from mxnum.prove.sym import Sym

    obligations: list[Any] = []

    def word(quantity: Any) -> Any:
        if quantity.name not in symbols:
            return quantity.default
        parts = quantity.parts(symbols[quantity.name])
        every = [Sym(z3.ZeroExt(claim.word - quantity.bits, part), obligations) for part in parts]
        return every if quantity.count > 1 or (claim.operation == "dot" and quantity.number) else every[0]

    result = claim.function(*map(word, claim.inputs))
    (output,) = claim.outputs
    return z3.Extract(output.bits - 1, 0, result.value)


def concrete(claim: Claim, values: Mapping[str, int]) -> dict[str, int]:
    """Return the answer of the definition for integer inputs."""

    def word(quantity: Any) -> Any:
        if quantity.name not in values:
            return quantity.default
        every = quantity.parts(values[quantity.name])
        return every if quantity.count > 1 or (claim.operation == "dot" and quantity.number) else every[0]

    if claim.operation == "quantize":
        return _concrete_block(claim, values)
    (output,) = claim.outputs
    return {output.name: int(claim.function(*map(word, claim.inputs))) & ((1 << output.bits) - 1)}


def _concrete_block(claim: Claim, values: Mapping[str, int]) -> dict[str, int]:
    from mxnum.prove.claims import element_of

    element, numbers = element_of(claim), {each.name: each.parts(values[each.name]) for each in claim.inputs}
    scale, codes = int(claim.function(numbers["x"])), 0
    for i in range(claim.format.block):
        given = {name: parts[i] for name, parts in numbers.items()} | {"scale": scale}
        codes |= concrete(element, given)["code"] << (i * claim.format.element.bits)
    return {"scale": scale, "codes": codes}
