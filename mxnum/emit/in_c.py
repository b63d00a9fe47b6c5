"""The printer of C99: one header without dependencies, which is valid C++ too."""

from __future__ import annotations

from collections.abc import Iterator

from mxnum.emit.matrix_unit import SumModel
from mxnum.emit.model import Model
from mxnum.emit.printer import INDENT, Printer, paragraphs
from mxnum.emit.program import Assignment, Call, Function, Loop, Number, Operation
from mxnum.formats import FLOATS, ElementFormat

#: The C type that holds numbers of each float type. Numbers of 16-bit types are passed as bit
#: patterns, in uint16_t.
_FLOAT = {"float32": "float", "float64": "double"}


class C(Printer):
    """The printer of C: functions are ``static inline``, and have the model's name as a prefix."""

    def called(self, function: Function) -> str:
        """Return a function's name with the model's name as a prefix: C has no namespaces."""
        return f"{self.model.name}_{function.name}"

    def text(self) -> str:
        """Return the header."""
        guard = f"{self.model.name.upper()}_H"
        head = "\n".join(f" * {line}".rstrip() for line in paragraphs("\n\n".join(self.head()), 96))
        lines = [f"/*\n{head}\n */", f"#ifndef {guard}", f"#define {guard}", *_ASSUMED]
        lines += [_CHECKED.format(self.model.name), "", *self.functions()]
        lines += [*self.arrays(), "#endif"]
        return "\n".join(lines) + "\n"

    def function(self, function: Function) -> Iterator[str]:
        """Yield the lines of a function, which writes more than one result through pointers."""
        kind = f"int{function.word}_t"
        parameters = [f"{kind} {name}" for name in function.parameters]
        several = len(function.results) > 1
        if several:
            parameters += [f"{kind} *{self.expression(each, function.word)}_out" for each in function.results]
        yield "/*"
        yield from (f" * {line}".rstrip() for line in paragraphs(function.comment, 96))
        yield " */"
        yield f"static inline {'void' if several else kind} {self.called(function)}({', '.join(parameters)})"
        yield "{"
        for name, value in function.constants.items():
            yield f"{INDENT}const {kind} K_{name.upper()} = {self.literal(value, function.word)};"
        if function.variables:
            yield f"{INDENT}{kind} {', '.join(function.variables)};"
        yield from self.statements(function.body, function.word)
        if several:
            for each in function.results:
                name = self.expression(each, function.word)
                yield f"{INDENT}*{name}_out = {name};"
        else:
            yield f"{INDENT}return {self.expression(function.results[0], function.word)};"
        yield "}"

    def assignment(self, statement: Assignment, word: int) -> str:
        """Return an assignment, or a call that writes several variables."""
        if len(statement.names) == 1:
            return f"{statement.names[0]} = {self.expression(statement.value, word)};"
        assert isinstance(statement.value, Call)
        arguments = [self.expression(each, word) for each in statement.value.arguments]
        results = [f"&{name}" for name in statement.names]
        return f"{self.called(statement.value.function)}({', '.join([*arguments, *results])});"

    def loop_begin(self, loop: Loop, word: int) -> str:
        """Return the head of a for loop."""
        return f"for (int {loop.index} = 0; {loop.index} < {loop.count}; {loop.index}++) {{"

    def operation(self, operation: Operation, word: int) -> str:
        """Return an operation.

        Left shifts are on unsigned integers, because C leaves left shifts of negative numbers
        undefined.
        """
        if operation.operator != "<<" or isinstance(operation.left, Number):
            return super().operation(operation, word)
        left, right = self.expression(operation.left, word, True), self.expression(operation.right, word, True)
        return f"(int{word}_t)((uint{word}_t){left} << {right})"

    def literal(self, value: int, word: int) -> str:
        """Return an integer literal of the word's type."""
        return f"INT64_C({value})" if word == 64 else str(value)

    def bits(self, kind: ElementFormat, name: str, word: int) -> Iterator[str]:
        """Yield the lines of the C function that returns the bits of a float."""
        held = _FLOAT.get(kind.name, "uint16_t")
        yield f"/* The bits of a {kind.name}, as the functions above take them. */"
        yield f"static inline int{word}_t {self.model.name}_{name}({held} x)"
        yield "{"
        if kind.bits == 16:
            yield f"{INDENT}return x;"
        else:
            yield f"{INDENT}int{kind.bits}_t bits;"
            yield f"{INDENT}memcpy(&bits, &x, sizeof bits);"
            yield f"{INDENT}return bits;"
        yield "}"
        yield ""

    def of_bits(self, target: ElementFormat, word: int) -> Iterator[str]:
        """Yield the lines of the C function that returns the float with the given bits."""
        held = _FLOAT.get(target.name, "uint16_t")
        yield f"/* The {target.name} whose bits are given. */"
        yield f"static inline {held} {self.model.name}_of_bits(int{word}_t bits)"
        yield "{"
        if target.bits == 16:
            yield f"{INDENT}return (uint16_t)bits;"
        else:
            yield f"{INDENT}int{target.bits}_t narrow = (int{target.bits}_t)bits;"
            yield f"{INDENT}{held} x;"
            yield f"{INDENT}memcpy(&x, &narrow, sizeof x);"
            yield f"{INDENT}return x;"
        yield "}"
        yield ""

    def blocks(self, model: Model) -> Iterator[str]:
        """Yield the lines of the functions that quantize and dequantize a block."""
        settings = model.settings
        yield from self.bits(settings.source, "bits", model.encode.word)
        yield from self.of_bits(settings.target, model.decode.word)
        name, word = model.name, f"int{model.encode.word}_t"
        held, result = _FLOAT.get(settings.source.name, "uint16_t"), _FLOAT.get(settings.target.name, "uint16_t")
        scale = f"uint{max(8, settings.format.scale.bits)}_t"
        tensor = ", int32_t tensor" if model.has_tensor_scale else ""
        random = ", const uint32_t *random" if model.align_random is not None else ""
        drawn = self.use(model.align_random, word="random[i]") if model.align_random is not None else ""
        encode = self.use(model.encode, x=f"{name}_bits(x[i])", scale="scale", tensor="tensor", random=drawn)
        nan = f"{INDENT}if (!finite) scale = {settings.format.scale.nan_code};"
        yield "/*"
        yield f" * Quantize a block of n numbers. n is {settings.format.block}, or less at the end of a row."
        yield " * Write the codes of the numbers to codes, and return the code of the block's scale."
        if model.has_tensor_scale:
            yield " * tensor: the bits of the tensor scale, which the function tensor_scale finds."
        if model.align_random is not None:
            yield f" * random: one random integer for each number; its low {settings.sr_bits} bits are used."
        yield " */"
        yield f"static inline {scale} {name}_quantize_block(const {held} *x, int n, uint8_t *codes{tensor}{random})"
        yield "{"
        yield f"{INDENT}{word} amax = 0, finite = 1, scale;"
        yield f"{INDENT}for (int i = 0; i < n; i++) {{"
        yield f"{INDENT * 2}{word} bits = {name}_bits(x[i]);"
        yield f"{INDENT * 2}amax = {self.use(model.larger, amax='amax', x='bits')};"
        yield f"{INDENT * 2}finite &= {self.use(model.is_finite, x='bits')};"
        yield f"{INDENT}}}"
        yield f"{INDENT}scale = {self.use(model.shared_scale, amax='amax', tensor='tensor')};"
        yield nan if settings.nonfinite.by_block else f"{INDENT}(void)finite;"
        yield f"{INDENT}for (int i = 0; i < n; i++) codes[i] = (uint8_t){encode};"
        yield f"{INDENT}return ({scale})scale;"
        yield "}"
        yield ""
        decode = self.use(model.decode, code="codes[i]", scale="scale", tensor="tensor")
        yield "/* Write the values of a block of n codes. */"
        parameters = f"const uint8_t *codes, int n, {scale} scale{tensor}, {result} *x"
        yield f"static inline void {name}_dequantize_block({parameters})"
        yield "{"
        yield f"{INDENT}for (int i = 0; i < n; i++) x[i] = {name}_of_bits({decode});"
        yield "}"

    def fused_sum(self, model: SumModel) -> Iterator[str]:
        """Yield the lines of the function `fused_sum`."""
        name, word = model.name, f"uint{FLOATS[model.unit.accumulator].bits}_t"
        p, q = (f"uint{8 if each.bits <= 8 else 32 if each.bits > 16 else 16}_t" for each in model.operands)
        yield "/*"
        yield from (f" * {line}".rstrip() for line in paragraphs(model.comment, 96))
        yield " */"
        yield f"static inline {word} {name}_fused_sum(const {p} *a, const {q} *b, int n, {word} c)"
        yield "{"
        yield f"{INDENT}int64_t largest = {self.use(model.addend_exponent, c='c')};"
        yield f"{INDENT}int64_t state = {self.use(model.addend_state, c='c')}, total;"
        yield f"{INDENT}for (int i = 0; i < n; i++) {{"
        yield f"{INDENT * 2}largest = {self.use(model.larger_exponent, largest='largest', a='a[i]', b='b[i]')};"
        yield f"{INDENT * 2}state = {self.use(model.product_state, state='state', a='a[i]', b='b[i]')};"
        yield f"{INDENT}}}"
        yield f"{INDENT}total = {self.use(model.aligned_addend, c='c', largest='largest')};"
        yield f"{INDENT}for (int i = 0; i < n; i++)"
        yield f"{INDENT * 2}total += {self.use(model.aligned_product, a='a[i]', b='b[i]', largest='largest')};"
        result = self.use(model.rounded, total="total", largest="largest", state="state")
        yield f"{INDENT}return ({word}){result};"
        yield "}"


#: The lines with which every header begins.
_ASSUMED = (
    "#include <stdint.h>",
    "#include <string.h>",
    "",
    "/* Assumed: right shifts keep the sign, as in every current compiler; floats follow IEEE 754. */",
)
#: A type declaration that compiles only if right shifts keep the sign and float has 4 bytes.
_CHECKED = "typedef char {}_assumes_arithmetic_shifts[(-1 >> 1) == -1 && sizeof(float) == 4 ? 1 : -1];"
