"""Implementations as functions of bit-vectors (`Circuit`), and their ports.

`bind` determines which input or output of a claim each port carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import z3

from mxnum import errors
from mxnum.prove.claims import Claim, Quantity


@dataclass(frozen=True)
class Answer:
    """The outputs of an implementation for symbolic inputs.

    For inputs that violate an obligation, the behaviour of the implementation is undefined. The
    premises define symbols that occur in the outputs.
    """

    outputs: Mapping[str, z3.BitVecRef]
    obligations: Sequence[z3.BoolRef] = ()
    premises: Sequence[z3.BoolRef] = ()


@dataclass(frozen=True)
class Circuit:
    """An implementation as a function of bit-vectors."""

    #: The kind, name and file of the implementation in reports, such as "module top in a.sv".
    name: str
    #: The widths of inputs and outputs in bits.
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    run: Callable[[Mapping[str, z3.BitVecRef]], Answer] = field(repr=False)
    #: The proof's assumptions about the implementation, as sentences for reports.
    notes: tuple[str, ...] = ()
    #: True if `bind` may bind inputs by position. `bind` does so only for an input that is not in
    #: its argument `ports` and whose name matches no input of the claim.
    by_order: bool = False
    #: The names of a C function's pointer parameters. `bind` ignores these keys of `ports`, because
    #: `circuit_of` has already bound the pointers.
    pointers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Port:
    """The numbers that a port carries: `count` numbers of an input or output, from `first` on."""

    quantity: Quantity
    first: int
    count: int


@dataclass(frozen=True)
class Binding:
    """The contents of each port of a circuit: numbers of a claim, or a constant."""

    inputs: Mapping[str, Port | int]
    outputs: Mapping[str, Port]

    def taken(self, claim: Claim) -> tuple[Quantity, ...]:
        """Return those inputs of the claim that a port of the circuit carries."""
        names = {port.quantity.name for port in self.inputs.values() if isinstance(port, Port)}
        return tuple(each for each in claim.inputs if each.name in names)


def bind(circuit: Circuit, claim: Claim, ports: Mapping[str, str | int]) -> Binding:
    """Return the binding of a circuit's ports to the inputs and outputs of a claim.

    `ports` maps the name of a port to the name of an input or output of the claim, or to a
    constant. A port that is not in `ports` is bound to the input or output of the same name. If the
    claim has no input with the name of a function's parameter, the parameter is bound by its
    position. If circuit and claim have one output each, these two outputs are bound to each other,
    even if their names differ.
    """
    ports = {name: said for name, said in ports.items() if name not in circuit.pointers}
    for name in ports:
        errors.choose("ports", name, (*circuit.inputs, *circuit.outputs))
    inputs = _bound(circuit, circuit.inputs, claim.inputs, ports, circuit.by_order)
    outputs = _bound(circuit, circuit.outputs, claim.outputs, ports, len(circuit.outputs) == len(claim.outputs) == 1)
    for quantity in claim.inputs:
        parts = [port for port in inputs.values() if isinstance(port, Port) and port.quantity == quantity]
        if (not parts and quantity.default is None) or (parts and sum(p.count for p in parts) != quantity.count):
            raise ValueError(
                f"Argument 'ports' must say which input of {circuit.name} is {quantity.name!r}; its inputs are "
                f"{errors.joined(circuit.inputs)}."
            )
    if {port.quantity.name for port in outputs.values() if isinstance(port, Port)} != {o.name for o in claim.outputs}:
        raise ValueError(
            f"Argument 'ports' must say which output of {circuit.name} is "
            f"{errors.joined(repr(each.name) for each in claim.outputs)}; its outputs are "
            f"{errors.joined(circuit.outputs)}."
        )
    return Binding(inputs, {name: port for name, port in outputs.items() if isinstance(port, Port)})


def _bound(
    circuit: Circuit,
    widths: Mapping[str, int],
    quantities: Sequence[Quantity],
    ports: Mapping[str, str | int],
    by_order: bool,
) -> dict[str, Port | int]:
    """Return a dictionary from the name of each port in `widths` to its `Port` or its constant.

    The dictionary omits outputs that the claim does not have. Raise ValueError for an input that
    neither `ports`, nor its name, nor its position binds.
    """
    named = {quantity.name: quantity for quantity in quantities}
    found: dict[str, Port | int] = {}
    for name in widths:
        said = ports.get(name, name)
        if isinstance(said, int):
            if widths is circuit.outputs:
                raise ValueError(f"Argument 'ports' must map output {name!r} to one of {list(named)}, not to a number.")
            if not -(1 << widths[name] >> 1) <= said < 1 << widths[name]:
                raise ValueError(
                    f"Argument 'ports' must map {name!r} to a number of at most {widths[name]} bits, not to {said}."
                )
            found[name] = said
        elif (port := _port(said, named)) is not None:
            found[name] = port
        elif name in ports:
            raise ValueError(
                f"Argument 'ports' must map {name!r} to one of {list(named)} or to a number, not to {said!r}."
            )
    rest = [name for name in widths if name not in found]
    free = [each for each in quantities if not any(isinstance(p, Port) and p.quantity == each for p in found.values())]
    if rest and by_order and len(rest) <= len(free):
        # Bind the remaining parameters in order. If the claim has exactly as many free required
        # inputs, bind the parameters to these, otherwise to the first free inputs of any kind.
        needed = [each for each in free if each.default is None]
        chosen = free[: len(rest)] if len(needed) != len(rest) else needed
        found |= {name: Port(each, 0, each.count) for name, each in zip(rest, chosen, strict=True)}
        rest = []
    if rest and widths is circuit.inputs:
        raise ValueError(
            f"Argument 'ports' must map input {rest[0]!r} of {circuit.name} to one of {list(named)} or to a number."
        )
    return found


def _port(said: str, named: Mapping[str, Quantity]) -> Port | None:
    """Return the numbers that the text `said` names, or None if `said` names no numbers.

    The name of an input or output, such as `a`, names all its numbers. The texts `a3`, `a[3]` and
    `a_3` all name number 3 of `a`.
    """
    if said in named:
        return Port(named[said], 0, named[said].count)
    plain = said.replace("[", "").replace("]", "")
    stem = plain.rstrip("0123456789")
    digits, stem = plain[len(stem) :], stem.rstrip("_")
    if digits and stem in named and int(digits) < named[stem].count > 1:
        return Port(named[stem], int(digits), 1)
    return None


def given(circuit: Circuit, binding: Binding, values: Mapping[str, z3.BitVecRef]) -> dict[str, z3.BitVecRef]:
    """Return the value of each input of a circuit, given the values of the claim's inputs.

    If a port is wider than the number that it carries, the function extends the number: it
    sign-extends a float32 or float64, and zero-extends any other number.
    """
    found = {}
    for name, width in circuit.inputs.items():
        port = binding.inputs[name]
        if isinstance(port, int):
            found[name] = z3.BitVecVal(port, width)
            continue
        bits = port.quantity.bits
        value = z3.Extract(bits * (port.first + port.count) - 1, bits * port.first, values[port.quantity.name])
        if value.size() > width:
            raise ValueError(
                f"Input {name!r} of {circuit.name} must have at least {value.size()} bits for {port.quantity.text}, "
                f"not {width}."
            )
        is_float = port.quantity.number is not None and port.quantity.number.name in ("float32", "float64")
        extend = z3.SignExt if is_float else z3.ZeroExt
        found[name] = extend(width - value.size(), value)
    return found


def narrowed(circuit: Circuit, name: str, port: Port, value: z3.BitVecRef) -> tuple[z3.BitVecRef, list[z3.BoolRef]]:
    """Return the low bits of an output, and the conditions that its higher bits must satisfy.

    The low bits are the numbers of the claim. The higher bits must be a zero extension or a sign
    extension of the low bits.
    """
    bits = port.quantity.bits * port.count
    if value.size() < bits:
        raise ValueError(
            f"Output {name!r} of {circuit.name} must have at least {bits} bits for {port.quantity.text}, "
            f"not {value.size()}."
        )
    if value.size() == bits:
        return value, []
    low, more = z3.Extract(bits - 1, 0, value), value.size() - bits
    return low, [z3.Or(value == z3.ZeroExt(more, low), value == z3.SignExt(more, low))]
