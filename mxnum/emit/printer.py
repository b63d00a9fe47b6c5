"""What the printers of all languages share: statements and expressions, from the inside out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import ClassVar

from mxnum import __version__
from mxnum.emit.model import Model
from mxnum.emit.program import Assignment, Call, Choice, Expression, Function, Loop, Name, Number, Operation, Statement

INDENT = "    "


class Printer:
    """Prints functions; a language overrides what it writes in another way."""

    #: Begins the name of a constant, so that no macro or variable has that name.
    constant = "K_{}"
    #: Operators that the language writes in another way than Python.
    operators: ClassVar[Mapping[str, str]] = {}

    def __init__(self, model: Model):
        self.model = model

    def text(self) -> str:
        """Return the file."""
        raise NotImplementedError

    def head(self) -> list[str]:
        """Return the lines of text at the beginning of the file."""
        return [
            f"A reference model of {self.model.settings.text}.",
            f"Written by mxnum {__version__} from its definition: integers only, rounded once, right to the bit.",
        ]

    def function(self, function: Function) -> Iterator[str]:
        """Yield the lines of one function."""
        raise NotImplementedError

    def functions(self) -> Iterator[str]:
        """Yield the lines of all functions, each after those that it calls."""
        for each in self.model.program.functions:
            yield from self.function(each)
            yield ""

    def statements(self, body: tuple[Statement, ...], word: int, depth: int = 1) -> Iterator[str]:
        """Yield the lines of a body."""
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
        """Return an expression; operations and choices within others come in parentheses."""
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
        """Return a choice without parentheses around it."""
        condition, *both = (self.expression(e, word, True) for e in (choice.condition, choice.if_true, choice.if_false))
        return f"{condition} ? {both[0]} : {both[1]}"

    def call(self, call: Call, word: int) -> str:
        """Return the call of a function, with all of its results where a language can."""
        return f"{self.called(call.function)}({', '.join(self.expression(a, word) for a in call.arguments)})"

    def called(self, function: Function) -> str:
        """Return the name of a function as it is called."""
        return function.name

    def name(self, name: str) -> str:
        """Return a variable's name."""
        return name

    def literal(self, value: int, word: int) -> str:
        """Return an integer that has no name."""
        return str(value)

    def use(self, function: Function, **values: str) -> str:
        """Return a call of one of the model's functions, with those of the values that it takes."""
        return f"{self.called(function)}({', '.join(values[name] for name in self.parameters(function))})"

    @staticmethod
    def parameters(function: Function) -> tuple[str, ...]:
        """Return the parameters of a function."""
        return function.parameters


def paragraphs(comment: str, width: int) -> list[str]:
    """Return the lines of a comment, wrapped."""
    found: list[str] = []
    for paragraph in comment.split("\n\n"):
        found += ["", *textwrap.wrap(" ".join(paragraph.split()), width, break_on_hyphens=False)]
    return found[1:]
