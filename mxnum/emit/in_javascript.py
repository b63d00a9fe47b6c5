"""The printer of JavaScript, which prints an ES module for browsers, node and deno.

Functions on words of 32 bits take the type Number; functions on words of 64 bits take BigInt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from mxnum.emit.matrix_unit import SumModel
from mxnum.emit.model import Model
from mxnum.emit.printer import INDENT, Printer, paragraphs
from mxnum.emit.program import Assignment, Function, Loop


class JavaScript(Printer):
    """Prints a model as a JavaScript module, which exports only the functions that users call.

    A function with several results returns an array.
    """

    operators: ClassVar[Mapping[str, str]] = {"==": "===", "!=": "!=="}

    def text(self) -> str:
        """Return the module."""
        head = [f"// {line}".rstrip() for line in paragraphs("\n\n".join(self.head()), 96)]
        return (
            "\n".join(
                [
                    *head,
                    "",
                    "const view = new DataView(new ArrayBuffer(8));",
                    "",
                    *self.functions(),
                    *self.arrays(),
                ]
            )
            + "\n"
        )

    def function(self, function: Function) -> Iterator[str]:
        """Yield a function."""
        yield "/**"
        yield from (f" * {line}".rstrip() for line in paragraphs(function.comment, 96))
        yield " */"
        export = "export " if self.is_exported(function) else ""
        yield f"{export}function {function.name}({', '.join(function.parameters)}) {{"
        for name, value in function.constants.items():
            yield f"{INDENT}const K_{name.upper()} = {self.literal(value, function.word)};"
        if function.variables:
            yield f"{INDENT}let {', '.join(function.variables)};"
        yield from self.statements(function.body, function.word)
        results = ", ".join(self.expression(each, function.word) for each in function.results)
        yield f"{INDENT}return {f'[{results}]' if len(function.results) > 1 else results};"
        yield "}"

    def is_exported(self, function: Function) -> bool:
        """Return True if a function is one that users of the module call."""
        return function in self.model.roots

    def assignment(self, statement: Assignment, word: int) -> str:
        """Return an assignment to one or several names."""
        names = statement.names
        left = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
        return f"{left} = {self.expression(statement.value, word)};"

    def loop_begin(self, loop: Loop, word: int) -> str:
        """Return the head of a for loop."""
        first, last = self.literal(0, word), self.literal(loop.count, word)
        return f"for (let {loop.index} = {first}; {loop.index} < {last}; {loop.index}++) {{"

    def literal(self, value: int, word: int) -> str:
        """Return an integer literal of the word's type."""
        return f"{value}n" if word == 64 else str(value)

    def conversions(self, model: Model) -> Iterator[str]:
        """Yield the functions that convert numbers to bits and back.

        Numbers of 16-bit types are always given as bits.
        """
        source, target = model.settings.source, model.settings.target
        wide, wide_back = model.encode.word == 64, model.decode.word == 64
        yield f"/** The bits of a {source.name}, as the functions above take them. */"
        yield "export function bits(x) {"
        if source.bits == 16:
            found = "x"
        else:
            yield f"{INDENT}view.setFloat{source.bits}(0, x);"
            found = f"view.get{'BigInt' if source.bits == 64 else 'Int'}{source.bits}(0)"
        yield f"{INDENT}return {f'BigInt({found})' if wide and source.bits < 64 else found};"
        yield "}"
        yield ""
        yield f"/** The {target.name} whose bits are given. */"
        yield "export function of_bits(code) {"
        narrow = f"Number(BigInt.asIntN({target.bits}, code))" if wide_back else "code"
        if target.bits == 16:
            yield f"{INDENT}return {narrow} & 0xffff;"
        else:
            put = "setBigInt64(0, code)" if target.bits == 64 else f"setInt32(0, {narrow})"
            yield f"{INDENT}view.{put};"
            yield f"{INDENT}return view.getFloat{target.bits}(0);"
        yield "}"
        yield ""

    def fused_sum(self, model: SumModel) -> Iterator[str]:
        """Yield the lines of the function `fused_sum`."""
        yield "/**"
        yield from (f" * {line}".rstrip() for line in paragraphs(model.comment, 96))
        yield " */"
        yield "export function fused_sum(a, b, c) {"
        yield f"{INDENT}const p = Array.from(a, BigInt), q = Array.from(b, BigInt), addend = BigInt(c);"
        yield f"{INDENT}let largest = {self.use(model.addend_exponent, c='addend')};"
        yield f"{INDENT}let state = {self.use(model.addend_state, c='addend')};"
        yield f"{INDENT}for (let i = 0; i < p.length; i++) {{"
        yield f"{INDENT * 2}largest = {self.use(model.larger_exponent, largest='largest', a='p[i]', b='q[i]')};"
        yield f"{INDENT * 2}state = {self.use(model.product_state, state='state', a='p[i]', b='q[i]')};"
        yield f"{INDENT}}}"
        yield f"{INDENT}let total = {self.use(model.aligned_addend, c='addend', largest='largest')};"
        yield f"{INDENT}for (let i = 0; i < p.length; i++)"
        yield f"{INDENT * 2}total += {self.use(model.aligned_product, a='p[i]', b='q[i]', largest='largest')};"
        yield f"{INDENT}return Number({self.use(model.rounded, total='total', largest='largest', state='state')});"
        yield "}"

    def blocks(self, model: Model) -> Iterator[str]:
        """Yield the lines of the functions that quantize and dequantize a block."""
        settings = model.settings
        yield from self.conversions(model)
        wide, wide_back = model.encode.word == 64, model.decode.word == 64
        zero, one = self.literal(0, model.encode.word), self.literal(1, model.encode.word)
        tensor = ", tensor" if model.has_tensor_scale else ""
        random = ", random" if model.align_random is not None else ""
        word = "BigInt(random[i])" if wide else "random[i]"
        drawn = self.use(model.align_random, word=word) if model.align_random is not None else ""
        encode = self.use(model.encode, x="bits(x[i])", scale="scale", tensor="tensor", random=drawn)
        yield "/**"
        yield f" * Quantize a block of {settings.format.block} numbers, or fewer at the end of a row."
        if model.has_tensor_scale:
            yield " * tensor: the bits of the tensor scale, as tensor_scale returns them."
        if model.align_random is not None:
            yield f" * random: one random integer for each number; its low {settings.sr_bits} bits are used."
        yield " */"
        yield f"export function quantize_block(x{tensor}{random}) {{"
        yield f"{INDENT}let amax = {zero}, finite = {one};"
        yield f"{INDENT}for (const number of x) {{"
        yield f"{INDENT * 2}amax = {self.use(model.larger, amax='amax', x='bits(number)')};"
        yield f"{INDENT * 2}finite &= {self.use(model.is_finite, x='bits(number)')};"
        yield f"{INDENT}}}"
        yield f"{INDENT}let scale = {self.use(model.shared_scale, amax='amax', tensor='tensor')};"
        if settings.nonfinite.by_block:
            nan = self.literal(settings.format.scale.nan_code, model.encode.word)
            yield f"{INDENT}if (finite === {zero}) scale = {nan};"
        yield f"{INDENT}const codes = Array.from(x, (_, i) => {f'Number({encode})' if wide else encode});"
        yield f"{INDENT}return {{ scale: {'Number(scale)' if wide else 'scale'}, codes }};"
        yield "}"
        yield ""
        given = ("BigInt(code)", "BigInt(scale)") if wide_back else ("code", "scale")
        decode = self.use(model.decode, code=given[0], scale=given[1], tensor="tensor")
        yield "/** The values of a block of codes. */"
        yield f"export function dequantize_block(codes, scale{tensor}) {{"
        yield f"{INDENT}return Array.from(codes, (code) => of_bits({decode}));"
        yield "}"
