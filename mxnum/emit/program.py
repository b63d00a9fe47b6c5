"""Translate functions in the Python subset of `mxnum.definition.word` to syntax trees.

`Program.add` reads the syntax tree of a function that a factory made, and the constants in the
function's closure. The condition of an `if` must depend on constants only, and the program keeps
only the branch that is taken. Statements keep their form and their names, so that an emitted model
reads like the definition.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mxnum.definition.word import is_dialect, select


@dataclass(frozen=True)
class Name:
    """A parameter or a variable."""

    name: str


@dataclass(frozen=True)
class Number:
    """An integer, with its name in the definition if it has one."""

    value: int
    name: str = ""


@dataclass(frozen=True)
class Operation:
    """An operation on two operands, in Python's notation: ``& | ^ << >> + - * < <= > >= == !=``."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Choice:
    """A call of `select`: one of two values, chosen by a condition."""

    condition: Expression
    if_true: Expression
    if_false: Expression


@dataclass(frozen=True)
class Call:
    """A call of another function of the program."""

    function: Function
    arguments: tuple[Expression, ...]


Expression = Name | Number | Operation | Choice | Call


@dataclass(frozen=True)
class Assignment:
    """An assignment of any value to one name, or of a call's results to several names."""

    names: tuple[str, ...]
    value: Expression


@dataclass(frozen=True)
class Loop:
    """Statements that are repeated `count` times, with `index` = 0, 1, ..."""

    index: str
    count: int
    body: tuple[Statement, ...]


Statement = Assignment | Loop


@dataclass(frozen=True, eq=False)
class Function:
    """A function whose parameters and results are integers of `word` bits."""

    name: str
    word: int
    #: The parameters on which the results depend; other parameters are left out.
    parameters: tuple[str, ...]
    body: tuple[Statement, ...]
    #: A single result may be any expression; several results must be names.
    results: tuple[Expression, ...]
    #: The text that printers write above the function, by default its factory's docstring.
    comment: str

    @property
    def constants(self) -> dict[str, int]:
        """The named numbers in the function, in the order of their use."""
        found: dict[str, int] = {}
        for expression in _expressions(self):
            for part in parts(expression):
                if isinstance(part, Number) and part.name:
                    found.setdefault(part.name, part.value)
        return found

    @property
    def variables(self) -> tuple[str, ...]:
        """The names that the function assigns, except its parameters."""
        assigned = [name for statement in flat(self.body) for name in statement.names]
        return tuple(dict.fromkeys(name for name in assigned if name not in self.parameters))


def flat(body: tuple[Statement, ...]) -> list[Assignment]:
    """Return the assignments of a body, including the assignments in loops."""
    return [one for s in body for one in (flat(s.body) if isinstance(s, Loop) else [s])]


def parts(expression: Expression) -> list[Expression]:
    """Return an expression and all expressions in it, outer expressions first."""
    inner: tuple[Expression, ...] = ()
    if isinstance(expression, Operation):
        inner = (expression.left, expression.right)
    elif isinstance(expression, Choice):
        inner = (expression.condition, expression.if_true, expression.if_false)
    elif isinstance(expression, Call):
        inner = expression.arguments
    return [expression, *(part for each in inner for part in parts(each))]


def _expressions(function: Function) -> list[Expression]:
    return [*(each.value for each in flat(function.body)), *function.results]


@dataclass
class Program:
    """A list of functions, in which each function comes after the functions that it calls."""

    #: For each factory whose functions implement clauses of a standard, a sentence that names the
    #: clauses.
    clauses: Mapping[str, str] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)
    _known: dict[tuple[Any, int], Function] = field(default_factory=dict, repr=False)

    def add(self, function: Callable[..., Any], name: str, word: int, comment: str = "") -> Function:
        """Add a function and the functions that it calls to the program; return its `Function`."""
        key = (function, word)
        if key not in self._known:
            taken = {each.name for each in self.functions}
            name = next(n for n in (name, *(f"{name}_{i}" for i in range(2, 1000))) if n not in taken)
            self._known[key] = _Reader(self, function, name, word).read(comment)
            self.functions.append(self._known[key])
        return self._known[key]


_OPERATORS = {
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.Add: "+", ast.Sub: "-",
    ast.Mult: "*", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip


class _Reader:
    """A reader of one function.

    The reader adds each called function to `program`, under a name that begins with the caller's
    name.
    """

    def __init__(self, program: Program, function: Callable[..., Any], name: str, word: int):
        self.program, self.name, self.word = program, name, word
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        assert isinstance(tree, ast.FunctionDef)
        self.tree = tree
        closure = inspect.getclosurevars(function)
        self.values: Mapping[str, Any] = {**closure.builtins, **closure.globals, **closure.nonlocals}
        self.function = function
        self.variables = {argument.arg for argument in tree.args.args}
        self.variables |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.unused = 0

    def read(self, comment: str) -> Function:
        """Return the function, without parameters that do not affect its results."""
        body, results = self.block(self.tree.body)
        assert results is not None
        if len(results) > 1:  # name each result, so that every language can return several results
            for place, result in enumerate(results):
                if not isinstance(result, Name):
                    body.append(Assignment((f"result_{place}",), result))
            results = tuple(r if isinstance(r, Name) else Name(f"result_{i}") for i, r in enumerate(results))
        found = _without_unused(
            Function(
                self.name, self.word, (), tuple(body), results, _comment(self.function, comment, self.program.clauses)
            )
        )
        used = {part.name for each in _expressions(found) for part in parts(each) if isinstance(part, Name)}
        return replace(found, parameters=tuple(a.arg for a in self.tree.args.args if a.arg in used))

    def block(self, nodes: list[ast.stmt]) -> tuple[list[Statement], tuple[Expression, ...] | None]:
        """Return the statements of a block, and its results (None if it has no `return`)."""
        found: list[Statement] = []
        for node in nodes:
            if isinstance(node, ast.If):
                inner, results = self.block(node.body if self.decided(node.test) else node.orelse)
                found += inner
                if results is not None:
                    return found, results
            elif isinstance(node, ast.Return) and node.value is not None:
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                return found, tuple(map(self.expression, values))
            elif isinstance(node, ast.For):
                found.append(self.loop(node))
            elif isinstance(node, ast.Assign):
                found += self.assignments(node)
            elif not isinstance(node, ast.Expr):
                raise self.unknown(node)
        return found, None

    def loop(self, node: ast.For) -> Loop:
        """Return a loop over ``range(count)``."""
        if not (isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Call) and len(node.iter.args) == 1):
            raise self.unknown(node)
        body, results = self.block(node.body)
        if results is not None:
            raise self.unknown(node)
        index = "step" if node.target.id == "_" else node.target.id
        return Loop(index, int(self.decided(node.iter.args[0])), tuple(body))

    def assignments(self, node: ast.Assign) -> list[Statement]:
        """Return the assignments of a statement that assigns to a name or to a tuple of names."""
        (target,) = node.targets
        if isinstance(target, ast.Name):
            return [Assignment((target.id,), self.expression(node.value))]
        if not isinstance(target, ast.Tuple) or not all(isinstance(each, ast.Name) for each in target.elts):
            raise self.unknown(node)
        names = [each.id for each in target.elts if isinstance(each, ast.Name)]
        if isinstance(node.value, ast.Tuple):
            return self.pairs(names, [self.expression(value) for value in node.value.elts])
        for place, name in enumerate(names):
            if name == "_":
                self.unused += 1
                names[place] = f"unused_{self.unused}"
        return [Assignment(tuple(names), self.expression(node.value))]

    def pairs(self, names: list[str], values: list[Expression]) -> list[Statement]:
        """Return the statement ``a, b = c, d`` as single assignments, ``a = c`` and ``b = d``.

        Raise NotImplementedError if a value contains a name that an earlier assignment changes.
        """
        for place, value in enumerate(values):
            read = {part.name for part in parts(value) if isinstance(part, Name)}
            if read & set(names[:place]):
                raise NotImplementedError(
                    f"{self.name}: the value of {names[place]} reads a name that the same statement assigns earlier"
                )
        return [Assignment((name,), value) for name, value in zip(names, values, strict=True)]

    def decided(self, node: ast.expr) -> Any:
        """Return the value of an expression that depends only on constants of the factory."""
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        if names & self.variables:
            raise self.unknown(node)
        return eval(compile(ast.Expression(node), self.name, "eval"), {"__builtins__": {}}, dict(self.values))

    def expression(self, node: ast.expr) -> Expression:
        """Return the program's expression for a node of the syntax tree."""
        if isinstance(node, ast.Name):
            if node.id in self.variables:
                return Name(node.id)
            return Number(int(self.values[node.id]), node.id)
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return Number(int(node.value))
        if isinstance(node, ast.IfExp):
            return self.expression(node.body if self.decided(node.test) else node.orelse)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return Operation(_OPERATORS[type(node.op)], self.expression(node.left), self.expression(node.right))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPERATORS:
            left, right = self.expression(node.left), self.expression(node.comparators[0])
            return Operation(_OPERATORS[type(node.ops[0])], left, right)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self.call(self.values[node.func.id], node)
        raise self.unknown(node)

    def call(self, function: Any, node: ast.Call) -> Expression:
        """Return a `Choice` for a call of `select`, and a `Call` for a call of another function.

        Add the other function to the program.
        """
        arguments = [self.expression(argument) for argument in node.args]
        if function is select:
            return Choice(*arguments)
        if not is_dialect(function):
            raise self.unknown(node)
        assert isinstance(node.func, ast.Name)
        called = self.program.add(function, f"{self.name}_{node.func.id}", self.word)
        given = dict(zip(inspect.signature(function).parameters, arguments, strict=True))
        return Call(called, tuple(given[name] for name in called.parameters))

    def unknown(self, node: ast.AST) -> Exception:
        """Return the error for code that a program cannot express."""
        return NotImplementedError(f"{self.name}: `{ast.unparse(node)}` is not in the dialect")


def _without_unused(function: Function) -> Function:
    """Return a function without its assignments to names that are never read."""
    while True:
        read = {part.name for each in _expressions(function) for part in parts(each) if isinstance(part, Name)}
        body = tuple(s for s in function.body if not (isinstance(s, Assignment) and not read & set(s.names)))
        if body == function.body:
            return function
        function = replace(function, body=body)


def _comment(function: Callable[..., Any], comment: str, clauses: Mapping[str, str]) -> str:
    """Return the comment that printers write above a function.

    The comment is `comment` or, if `comment` is empty, a docstring. The clauses of standards that
    the function implements follow.
    """
    factory = function.__qualname__.split(".")[0]
    if not comment:
        text = inspect.getdoc(function) or inspect.getdoc(function.__globals__[factory]) or ""
        first, _, rest = text.partition("\n\n")
        first = re.sub(r"\s+", " ", re.sub(r"^Return `[^`]*`,? ?(which )?", "", first, flags=re.S))
        comment = "\n\n".join(each for each in (f"{first[:1].upper()}{first[1:]}", rest) if each)
    return "\n\n".join(each for each in (comment, clauses.get(factory, "")) if each)
