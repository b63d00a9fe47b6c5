"""The printer of SystemVerilog: a package of functions without DPI.

yosys and Icarus Verilog can read the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from mxnum.emit.matrix_unit import SumModel
from mxnum.emit.model import Model
from mxnum.emit.printer import INDENT, Printer, paragraphs
from mxnum.emit.program import Assignment, Function, Loop
from mxnum.formats import FLOATS


class SystemVerilog(Printer):
    """The printer of SystemVerilog: functions of signed vectors.

    Several results are returned as one vector, with the first result in the highest bits.
    """

    operators: ClassVar[Mapping[str, str]] = {">>": ">>>"}

    def text(self) -> str:
        """Return the package."""
        head = [f"// {line}".rstrip() for line in paragraphs("\n\n".join(self.head()), 96)]
        lines = [*head, f"package {self.model.name};", "", *self.functions(), *self.arrays(), "endpackage"]
        return "\n".join(lines) + "\n"

    def function(self, function: Function) -> Iterator[str]:
        """Yield a function."""
        vector = f"[{function.word - 1}:0]"
        yield from (f"// {line}".rstrip() for line in paragraphs(function.comment, 96))
        width = f"[{function.word * len(function.results) - 1}:0]" if len(function.results) > 1 else f"signed {vector}"
        parameters = ", ".join(f"input logic signed {vector} {name}" for name in function.parameters)
        yield f"function automatic logic {width} {function.name}({parameters});"
        for name, value in function.constants.items():
            yield f"{INDENT}localparam logic signed {vector} K_{name.upper()} = {self.literal(value, function.word)};"
        if function.variables:
            yield f"{INDENT}logic signed {vector} {', '.join(function.variables)};"
        for loop in function.body:
            if isinstance(loop, Loop):
                yield f"{INDENT}integer {loop.index};"
        yield from self.statements(function.body, function.word)
        results = ", ".join(self.expression(each, function.word) for each in function.results)
        yield f"{INDENT}{function.name} = {f'{{{results}}}' if len(function.results) > 1 else results};"
        yield "endfunction"

    def assignment(self, statement: Assignment, word: int) -> str:
        """Return an assignment to one or several names."""
        names = statement.names
        left = names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"
        return f"{left} = {self.expression(statement.value, word)};"

    def loop_begin(self, loop: Loop, word: int) -> str:
        """Return the head of a for loop."""
        return f"for ({loop.index} = 0; {loop.index} < {loop.count}; {loop.index} = {loop.index} + 1) begin"

    def loop_end(self) -> tuple[str, ...]:
        """Return the end of a loop."""
        return ("end",)

    def literal(self, value: int, word: int) -> str:
        """Return an integer literal, with a width if the integer has more than 32 bits."""
        return str(value) if -(1 << 31) <= value < 1 << 31 else f"{'-' if value < 0 else ''}64'sd{abs(value)}"

    def fused_sum(self, model: SumModel) -> Iterator[str]:
        """Yield the lines of `fused_sum`; vectors a and b have factor 0 in the lowest bits."""
        n, out = model.unit.terms, FLOATS[model.unit.accumulator].bits
        (p, q), product = (each.bits for each in model.operands), {"a": "code_a", "b": "code_b", "largest": "largest"}
        yield from (f"// {line}".rstrip() for line in paragraphs(model.comment, 96))
        yield (
            f"function automatic logic [{out - 1}:0] fused_sum(input logic [{p * n - 1}:0] a, "
            f"input logic [{q * n - 1}:0] b, input logic [{out - 1}:0] c);"
        )
        yield f"{INDENT}logic signed [63:0] code_a, code_b, addend, largest, state, total;"
        yield f"{INDENT}integer i;"
        yield f"{INDENT}addend = c;"
        yield f"{INDENT}largest = {self.use(model.addend_exponent, c='addend')};"
        yield f"{INDENT}state = {self.use(model.addend_state, c='addend')};"
        for step in (
            (
                f"largest = {self.use(model.larger_exponent, **product)};",
                f"state = {self.use(model.product_state, state='state', **product)};",
            ),
            (f"total = total + {self.use(model.aligned_product, **product)};",),
        ):
            if len(step) == 1:
                yield f"{INDENT}total = {self.use(model.aligned_addend, c='addend', largest='largest')};"
            yield f"{INDENT}for (i = 0; i < {n}; i = i + 1) begin"
            yield f"{INDENT * 2}code_a = a[{p} * i +: {p}];"
            yield f"{INDENT * 2}code_b = b[{q} * i +: {q}];"
            yield from (f"{INDENT * 2}{line}" for line in step)
            yield f"{INDENT}end"
        yield f"{INDENT}total = {self.use(model.rounded, total='total', largest='largest', state='state')};"
        yield f"{INDENT}fused_sum = total[{out - 1}:0];"
        yield "endfunction"
        yield ""

    def blocks(self, model: Model) -> Iterator[str]:
        """Yield the lines of the functions that quantize and dequantize a block.

        A block is one vector, with element 0 in the lowest bits.
        """
        settings = model.settings
        fmt, word = settings.format, model.encode.word
        source, bits, scale, k = settings.source.bits, fmt.element.bits, fmt.scale.bits, fmt.block
        tensor = ", input logic [31:0] tensor" if model.has_tensor_scale else ""
        random = f", input logic [{32 * k - 1}:0] random" if model.align_random is not None else ""
        drawn = self.use(model.align_random, word="word") if model.align_random is not None else ""
        encode = self.use(model.encode, x="bits", scale="scale", tensor="wide_tensor", random=drawn)
        yield f"// Quantize a block of {k} numbers. The scale code is in the bits above the element codes."
        if model.has_tensor_scale:
            yield "// tensor: the bits of the tensor scale, which tensor_scale finds."
        if model.align_random is not None:
            yield f"// random: one random word for each number; its low {settings.sr_bits} bits are used."
        yield (
            f"function automatic logic [{scale + bits * k - 1}:0] quantize_block("
            f"input logic [{source * k - 1}:0] x{tensor}{random});"
        )
        more = ", wide_tensor" * bool(tensor) + ", word" * bool(random)
        yield f"{INDENT}logic signed [{word - 1}:0] bits, amax, scale, finite, code{more};"
        yield f"{INDENT}integer i;"
        yield f"{INDENT}amax = 0;"
        yield f"{INDENT}finite = 1;"
        if tensor:
            yield f"{INDENT}wide_tensor = $signed(tensor);"
        yield f"{INDENT}for (i = 0; i < {k}; i = i + 1) begin"
        yield f"{INDENT * 2}bits = $signed(x[{source} * i +: {source}]);"
        yield f"{INDENT * 2}amax = {self.use(model.larger, amax='amax', x='bits')};"
        yield f"{INDENT * 2}finite = finite & {self.use(model.is_finite, x='bits')};"
        yield f"{INDENT}end"
        yield f"{INDENT}scale = {self.use(model.shared_scale, amax='amax', tensor='wide_tensor')};"
        if settings.nonfinite.by_block:
            yield f"{INDENT}scale = (finite == 0) ? {self.literal(fmt.scale.nan_code, word)} : scale;"
        yield f"{INDENT}quantize_block[{bits * k} +: {scale}] = scale[{scale - 1}:0];"
        yield f"{INDENT}for (i = 0; i < {k}; i = i + 1) begin"
        yield f"{INDENT * 2}bits = $signed(x[{source} * i +: {source}]);"
        if random:
            yield f"{INDENT * 2}word = random[32 * i +: 32];"
        yield f"{INDENT * 2}code = {encode};"
        yield f"{INDENT * 2}quantize_block[{bits} * i +: {bits}] = code[{bits - 1}:0];"
        yield f"{INDENT}end"
        yield "endfunction"
        yield ""
        target, back = settings.target.bits, model.decode.word
        decode = self.use(model.decode, code="code", scale="wide_scale", tensor="wide_tensor")
        yield f"// The values of a block of {k} codes, as bits of {settings.target.name}."
        yield (
            f"function automatic logic [{target * k - 1}:0] dequantize_block("
            f"input logic [{bits * k - 1}:0] codes, input logic [{scale - 1}:0] scale{tensor});"
        )
        yield f"{INDENT}logic signed [{back - 1}:0] code, value, wide_scale{', wide_tensor' if tensor else ''};"
        yield f"{INDENT}integer i;"
        yield f"{INDENT}wide_scale = scale;"
        if tensor:
            yield f"{INDENT}wide_tensor = $signed(tensor);"
        yield f"{INDENT}for (i = 0; i < {k}; i = i + 1) begin"
        yield f"{INDENT * 2}code = codes[{bits} * i +: {bits}];"
        yield f"{INDENT * 2}value = {decode};"
        yield f"{INDENT * 2}dequantize_block[{target} * i +: {target}] = value[{target - 1}:0];"
        yield f"{INDENT}end"
        yield "endfunction"
        yield ""
