"""The printer of Python: functions of plain integers, which are easy to read and to port."""

from __future__ import annotations

from collections.abc import Iterator

from mxnum.emit.matrix_unit import SumModel
from mxnum.emit.model import Model
from mxnum.emit.printer import INDENT, Printer, paragraphs
from mxnum.emit.program import Assignment, Choice, Function, Loop

#: Two format letters of the module `struct` for each float type: the letter of an integer of the
#: same size, and the letter of the float type.
_STRUCT = {"float64": ("q", "d"), "float32": ("i", "f"), "float16": ("h", "e")}


class Python(Printer):
    """The printer of Python. The printed functions have docstrings, but no type annotations."""

    constant = "{}"

    def text(self) -> str:
        """Return the module."""
        head = "\n".join(paragraphs("\n\n".join(self.head()), 97))
        lines = [f'"""{head}\n"""', "", "import struct", "", "", *self.functions(), *self.arrays()]
        return "\n".join(lines) + "\n"

    def function(self, function: Function) -> Iterator[str]:
        """Yield a function."""
        yield ""
        yield f"def {function.name}({', '.join(function.parameters)}):"
        first, *rest = paragraphs(function.comment, 92)
        yield f'{INDENT}"""{first}' + ("" if rest else '"""')
        if rest:
            yield from (f"{INDENT}{line}".rstrip() for line in rest)
            yield f'{INDENT}"""'
        yield from (f"{INDENT}{name.upper()} = {value}" for name, value in function.constants.items())
        yield from self.statements(function.body, function.word)
        results = (self.expression(each, function.word) for each in function.results)
        yield f"{INDENT}return {', '.join(results)}"

    def assignment(self, statement: Assignment, word: int) -> str:
        """Return an assignment to one or several names."""
        return f"{', '.join(statement.names)} = {self.expression(statement.value, word)}"

    def loop_begin(self, loop: Loop, word: int) -> str:
        """Return the head of a for loop."""
        return f"for {loop.index} in range({loop.count}):"

    def loop_end(self) -> tuple[str, ...]:
        return ()

    def choice(self, choice: Choice, word: int) -> str:
        """Return a conditional expression."""
        condition, *both = (self.expression(e, word, True) for e in (choice.condition, choice.if_true, choice.if_false))
        return f"{both[0]} if {condition} else {both[1]}"

    def fused_sum(self, model: SumModel) -> Iterator[str]:
        """Yield the lines of the function `fused_sum`."""
        first, *rest = paragraphs(model.comment, 92)
        yield ""
        yield "def fused_sum(a, b, c):"
        yield f'{INDENT}"""{first}'
        yield from (f"{INDENT}{line}".rstrip() for line in rest)
        yield f'{INDENT}"""'
        yield f"{INDENT}largest = {self.use(model.addend_exponent, c='c')}"
        yield f"{INDENT}state = {self.use(model.addend_state, c='c')}"
        yield f"{INDENT}for p, q in zip(a, b):"
        yield f"{INDENT * 2}largest = {self.use(model.larger_exponent, largest='largest', a='p', b='q')}"
        yield f"{INDENT * 2}state = {self.use(model.product_state, state='state', a='p', b='q')}"
        yield f"{INDENT}total = {self.use(model.aligned_addend, c='c', largest='largest')}"
        yield f"{INDENT}for p, q in zip(a, b):"
        yield f"{INDENT * 2}total += {self.use(model.aligned_product, a='p', b='q', largest='largest')}"
        yield f"{INDENT}return {self.use(model.rounded, total='total', largest='largest', state='state')}"

    def blocks(self, model: Model) -> Iterator[str]:
        """Yield the lines of the functions that quantize and dequantize a block."""
        settings = model.settings
        tensor = ", tensor" if model.has_tensor_scale else ""
        random = ", random" if model.align_random is not None else ""
        drawn = self.use(model.align_random, word="random[i]") if model.align_random is not None else ""
        yield ""
        yield "def bits(x):"
        yield f'{INDENT}"""Return the bits of a number as a {settings.source.name}."""'
        yield f"{INDENT}return {_bits(settings.source.name)}"
        yield ""
        yield ""
        yield "def of_bits(code):"
        yield f'{INDENT}"""Return the number whose {settings.target.name} bits are given."""'
        yield f"{INDENT}return {_of_bits(settings.target.name)}"
        yield ""
        yield ""
        yield f"def quantize_block(x{tensor}{random}):"
        yield f'{INDENT}"""Return the scale code and the element codes of a block of {settings.format.block} numbers.'
        yield ""
        yield f"{INDENT}The last block of a row may be shorter."
        if model.has_tensor_scale:
            yield f"{INDENT}tensor: the bits of the tensor scale, which `tensor_scale` finds."
        if model.align_random is not None:
            yield f"{INDENT}random: one random integer for each number; its low {settings.sr_bits} bits are used."
        yield f'{INDENT}"""'
        yield f"{INDENT}amax, finite = 0, 1"
        yield f"{INDENT}for number in x:"
        yield f"{INDENT * 2}amax = {self.use(model.larger, amax='amax', x='bits(number)')}"
        yield f"{INDENT * 2}finite &= {self.use(model.is_finite, x='bits(number)')}"
        yield f"{INDENT}scale = {self.use(model.shared_scale, amax='amax', tensor='tensor')}"
        if settings.nonfinite.by_block:
            yield f"{INDENT}if not finite:"
            yield f"{INDENT * 2}scale = {settings.format.scale.nan_code}"
        encode = self.use(model.encode, x="bits(x[i])", scale="scale", tensor="tensor", random=drawn)
        yield f"{INDENT}return scale, [{encode} for i in range(len(x))]"
        yield ""
        yield ""
        decode = self.use(model.decode, code="code", scale="scale", tensor="tensor")
        yield f"def dequantize_block(codes, scale{tensor}):"
        yield f'{INDENT}"""Return the values of a block of codes."""'
        yield f"{INDENT}return [of_bits({decode}) for code in codes]"


def _bits(name: str) -> str:
    if name == "bfloat16":
        return 'struct.unpack("<i", struct.pack("<f", x))[0] >> 16'
    integer, number = _STRUCT[name]
    return f'struct.unpack("<{integer}", struct.pack("<{number}", x))[0]'


def _of_bits(name: str) -> str:
    if name == "bfloat16":
        return 'struct.unpack("<f", struct.pack("<I", (code & 0xFFFF) << 16))[0]'
    integer, number = _STRUCT[name]
    mask = {"q": 64, "i": 32, "h": 16}[integer]
    return f'struct.unpack("<{number}", struct.pack("<{integer.upper()}", code & {hex((1 << mask) - 1)}))[0]'
