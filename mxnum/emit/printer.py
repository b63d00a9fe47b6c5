"""The base class of all printers; it prints statements and expressions."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import ClassVar

from mxnum import __version__
from mxnum.emit.matrix_unit import SumModel
from mxnum.emit.model import Emitted, Model
from mxnum.emit.program import Assignment, Call, Choice, Expression, Function, Loop, Name, Number, Operation, Statement

INDENT = "    "


class Printer:
    """The base class of printers; a subclass for a language overrides methods for its syntax."""

    #: The template for a constant's name. The names of macros and variables never begin with K_.
    constant = "K_{}"
    #: The language's operator for each Python operator that the language writes differently.
    operators: ClassVar[Mapping[str, str]] = {}

    def __init__(self, model: Emitted):
        self.model = model

    def text(self) -> str:
        """Return the text of the file."""
        raise NotImplementedError

    def head(self) -> list[str]:
        """Return the lines of text at the beginning of the file."""
        return [
            f"A reference model of {self.model.about}.",
            f"Written by mxnum {__version__} from its definition: integers only, one rounding, bit-exact.",
        ]

    def function(self, function: Function) -> Iterator[str]:
        """Yield the lines of one function."""
        raise NotImplementedError

    def functions(self) -> Iterator[str]:
        """Yield the lines of all functions, each function after the functions that it calls."""
        for each in self.model.program.functions:
            yield from self.function(each)
            yield ""

    def arrays(self) -> Iterator[str]:
        """Yield the lines of the functions for whole blocks, or of `fused_sum` for a `SumModel`."""
        if isinstance(self.model, SumModel):
            return self.fused_sum(self.model)
        assert isinstance(self.model, Model)
        return self.blocks(self.model)

    def blocks(self, model: Model) -> Iterator[str]:
        """Yield the lines of the functions that quantize and dequantize a block."""
        raise NotImplementedError

    def fused_sum(self, model: SumModel) -> Iterator[str]:
        """Yield the lines of the function `fused_sum`."""
        raise NotImplementedError

    def statements(self, body: tuple[Statement, ...], word: int, depth: int = 1) -> Iterator[str]:
        """Yield the lines of the body of a function or a loop."""
        for statement in body:
            if isinstance(statement, Loop):
                yield INDENT * depth + self.loop_begin(statement, word)
                yield from self.statements(statement.body, word, depth + 1)
                yield from (INDENT * depth + line for line in self.loop_end())
            else:
                yield INDENT * depth + self.assignment(statement, word)

    def assignment(self, statement: Assignment, word: int) -> str:
        """Return the line of an assignment."""
        raise NotImplementedError

    def loop_begin(self, loop: Loop, word: int) -> str:
        """Return the line that begins a loop."""
        raise NotImplementedError

    def loop_end(self) -> tuple[str, ...]:
        """Return the lines that end a loop."""
        return ("}",)

    def expression(self, expression: Expression, word: int, inner: bool = False) -> str:
        """Return an expression; if `inner`, enclose operations and conditionals in parentheses."""
        if isinstance(expression, Name):
            return self.name(expression.name)
        if isinstance(expression, Number):
            return (
                self.constant.format(expression.name.upper())
                if expression.name
                else self.literal(expression.value, word)
            )
        if isinstance(expression, Call):
            return self.call(expression, word)
        text = self.operation(expression, word) if isinstance(expression, Operation) else self.choice(expression, word)
        return f"({text})" if inner else text

    def operation(self, operation: Operation, word: int) -> str:
        """Return an operation without parentheses around it."""
        operator = self.operators.get(operation.operator, operation.operator)
        left, right = self.expression(operation.left, word, True), self.expression(operation.right, word, True)
        return f"{left} {operator} {right}"

    def choice(self, choice: Choice, word: int) -> str:
        """Return a conditional expression without parentheses around it."""
        condition, *both = (self.expression(e, word, True) for e in (choice.condition, choice.if_true, choice.if_false))
        return f"{condition} ? {both[0]} : {both[1]}"

    def call(self, call: Call, word: int) -> str:
        """Return the call of a function."""
        return f"{self.called(call.function)}({', '.join(self.expression(a, word) for a in call.arguments)})"

    def called(self, function: Function) -> str:
        """Return the name by which emitted code calls a function."""
        return function.name

    def name(self, name: str) -> str:
        """Return a variable's name."""
        return name

    def literal(self, value: int, word: int) -> str:
        """Return the literal of an integer."""
        return str(value)

    def use(self, function: Function, **values: str) -> str:
        """Return a call of a function, whose arguments are those of `values` that it accepts."""
        return f"{self.called(function)}({', '.join(values[name] for name in self.parameters(function))})"

    @staticmethod
    def parameters(function: Function) -> tuple[str, ...]:
        """Return the parameters of a function."""
        return function.parameters


def paragraphs(comment: str, width: int) -> list[str]:
    """Return the lines of a comment, wrapped to `width` columns."""
    found: list[str] = []
    for paragraph in comment.split("\n\n"):
        found += ["", *textwrap.wrap(" ".join(paragraph.split()), width, break_on_hyphens=False)]
    return found[1:]
