"""Check kernels on whole arrays (level 3), in many shapes and memory layouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import mxnum as mx
from mxnum import errors
from mxnum.conformance import calling
from mxnum.conformance.bits import Generator, as_bits, as_floats, fitted
from mxnum.conformance.cases.arrays import LAYOUTS, Shape, checked_shapes, from_blocks, laid, shapes_of, to_blocks
from mxnum.conformance.cases.batches import BATCH, cases
from mxnum.conformance.cases.float_scales import ROWS, largest_of_tensors
from mxnum.conformance.cases.grid import as_magnitudes
from mxnum.conformance.hypotheses.arrangements import Answered, arrangements, block_columns, element_columns, repeated
from mxnum.conformance.judging.collector import Collector
from mxnum.conformance.judging.report import ArrayResult, ConformanceError, Profile, Report
from mxnum.conformance.judging.right import with_tensor
from mxnum.conformance.operations import in_blocks, known, make_task
from mxnum.conformance.task import Columns, Task, select
from mxnum.definition import by_numpy
from mxnum.formats import MXFormat
from mxnum.layout import Blocks, resolve_blocks, scales_shape
from mxnum.memory.dtypes import Array, code_dtype, scale_dtype

#: Layouts that the array of scales may have.
SCALES = ("plain", "transposed", "swizzled")
#: Arrays with more than `LARGE` elements are checked in the contiguous layout only, to save time.
LARGE = 100_000


def check_arrays(
    function: Callable[..., Any],
    *,
    format: str | MXFormat,
    operation: str = "quantize",
    axis: int = -1,
    block_shape: Sequence[int] | None = None,
    shapes: Sequence[Shape] | None = None,
    layouts: str | Iterable[str] = tuple(LAYOUTS),
    scales: str = "plain",
    packed: bool = False,
    arrays: str = "numpy",
    seed: int = 0,
    accept: str | Iterable[str] | None = None,
    strict: bool = False,
    **modes: Any,
) -> Report:
    """Compare a callable with the right answers on whole arrays, and return the report.

    The arrays have two axes. Their sizes range from one element to millions of elements, with and
    without a short last block. Their memory is contiguous, transposed, strided, or a part of a
    larger array. An array counts as wrong if the function raises an error for it, or returns a
    wrong shape or type; the report quotes the error. If any answer is wrong, `check_arrays` raises
    `ConformanceError`.

    Parameters
    ----------
    function
        The callable under test. `check_arrays` calls the function once for each array:

        - ``quantize``: ``function(x)`` returns ``(codes, scales)``; with ``rounding="sr"``, the
          call is ``function(x, words)``;
        - ``scale``: ``function(x)`` returns scale codes;
        - ``dequantize``: ``function(codes, scales)`` returns floats.

        If the format has a tensor scale, each array is one tensor. The function receives the
        tensor's largest magnitude and its tensor scale if it has parameters called ``largest`` and
        ``tensor_scale``. A quantizer without these parameters has to compute the tensor scale
        itself. Codes have the shape of x, or are packed row by row along the last axis. Arguments
        and answers have the types that `check` describes.
    format
        An MX format, whose blocks lie along `axis`, or are tiles of
        ``block_shape=(rows, columns)``.
    shapes, layouts
        Shapes (pairs of lengths) and layouts to test. By default, `check_arrays` chooses the shapes
        and tests all four layouts: ``"contiguous"``, ``"transposed"``, ``"strided"`` and
        ``"part"``.
    scales
        Layout of the scales: ``"plain"`` (the order of the blocks), ``"transposed"``, or
        ``"swizzled"`` (the order in which tensor cores read scales; only for blocks along the last
        axis).
    packed
        For ``dequantize``: pass packed codes, in the layout of `MXArray.pack`.
    arrays, accept, strict
        As in `check`.
    seed
        Seed of the random numbers in the arrays.
    **modes
        ``source``, ``rounding``, ``scale_rule``, ``overflow``, ``nonfinite``, ``sr_bits``: the
        modes that the callable claims to implement.

    Examples
    --------
    >>> import mxnum as mx
    >>> from mxnum.conformance import check_arrays
    >>> def quantize(x):
    ...     q = mx.quantize(x, "mxfp4_e2m1", axis=0)
    ...     return q.codes, q.scales
    >>> check_arrays(quantize, format="mxfp4_e2m1", axis=0, shapes=[(31, 2), (65, 7)]).is_equal
    True
    """
    errors.choose("operation", operation, ("quantize", "scale", "dequantize"))
    task, blocks = _task(operation, format, axis, block_shape, modes)
    kernel = _Kernel(calling.Implementation(function, arrays), task, blocks, scales, packed)
    listed = [layouts] if isinstance(layouts, str) else list(layouts)
    listed = [errors.choose("layouts", layout, tuple(LAYOUTS)) for layout in listed]
    seed = errors.integer("seed", seed, 0, (1 << 63) - 1)
    sizes = shapes_of(blocks) if shapes is None else checked_shapes(shapes)
    collector = Collector(task, Profile.of(accept))
    results, answered = [], []
    for shape in sorted(
        sizes, key=lambda shape: shape[1] == 1
    ):  # Arrays with one code in a row come last: their shape does not show whether codes are packed.
        for layout in listed if math.prod(shape) <= LARGE or shapes is not None else listed[:1]:
            result, one = kernel.run(collector, shape, layout, seed)
            results.append(result)
            answered += [one] if one else []
    unanswered = sum(result.blocks for result in results if result.problem)
    report = collector.report()
    orders = arrangements(task, answered) if any(one.wrong for one in answered) else []
    report.cases, report.bugs = report.cases + unanswered, report.bugs + unanswered
    report.arrays, report.arrangements = results, orders
    if report.bugs or (strict and not report.is_equal):
        raise ConformanceError(report)
    return report


def _task(
    operation: str, format: str | MXFormat, axis: int, block_shape: Sequence[int] | None, modes: dict[str, Any]
) -> tuple[Task, Blocks]:
    """Return the task that the arguments describe, and the shape (rows, columns) of a block."""
    others = {name: mode for name, mode in known(modes).items() if name != "block"}
    plain = make_task(operation, in_blocks(format, modes.get("block")), **others)
    along = None if block_shape is not None else axis
    blocks = resolve_blocks((1, 1), plain.block, axis=along, block_shape=block_shape)
    return replace(plain, format=in_blocks(plain.format, math.prod(blocks))), blocks


class _Kernel:
    """The callable under test, its task, and the layouts of its arguments and answers."""

    def __init__(
        self, implementation: calling.Implementation, task: Task, blocks: Blocks, scales: str, packed: bool
    ) -> None:
        self.implementation, self.task, self.blocks, self.packed = implementation, task, blocks, packed
        self.scales = errors.choose("scales", scales, SCALES)
        errors.require(
            self.scales != "swizzled" or blocks[0] == 1,
            "scales",
            f"one of {SCALES[:2]} if blocks span several rows",
            scales,
        )
        few = self.scales != "swizzled" or task.scale_bits <= 8
        errors.require(few, "scales", f"one of {SCALES[:2]} for scales of more than 8 bits", scales)
        errors.require(not packed or task.takes_codes, "packed", "False unless operation='dequantize'", packed)
        #: True after the function has returned packed codes. If each row holds one code, packed and
        #: unpacked codes have the same shape. The kernel is then assumed to pack if an earlier
        #: answer was packed.
        self.packs = False

    def run(self, collector: Collector, shape: Shape, layout: str, seed: int) -> tuple[ArrayResult, Answered | None]:
        """Call the function for one array, and compare its answers with the right answers."""
        name = f"array of shape {shape}, {layout}"
        seed = (seed * 1_000_003 + shape[0]) * 1_000_003 + shape[1]
        of_values = self.task.takes_codes
        count = math.prod(shape) if of_values else math.prod(scales_shape(shape, self.blocks))
        inputs = self._codes(shape, seed) if of_values else self._numbers(shape, seed)
        tensor = self._tensor(inputs, seed)
        implementation = self.implementation.in_tensor(self.task, tensor)
        try:
            answers = self._answers(implementation, inputs, shape, layout)
        except Exception as problem:
            said = " ".join(str(problem).split())
            return ArrayResult(shape, layout, count, count, f"{type(problem).__name__}: {said}"), None
        columns, given = (element_columns if of_values else block_columns)(inputs, answers, self.blocks)
        if not of_values:  # mark the padding of short blocks
            columns["padding"] = to_blocks(np.ones(inputs["x"].shape, np.uint8), self.blocks) == 0
        columns |= repeated(tensor, count)
        wrong = 0

        def where(number: int) -> str:
            table = shape if of_values else scales_shape(shape, self.blocks)
            row, column = divmod(number, table[1])
            return f"{name}, {'element' if of_values else 'block'} ({row}, {column})"

        for start in range(0, count, BATCH):
            part, got = (select(some, slice(start, start + BATCH)) for some in (columns, given))
            wrong += collector.add(part, got, start, where)
        return ArrayResult(shape, layout, count, wrong), Answered(inputs, answers, self.blocks, layout, wrong, tensor)

    def _numbers(self, shape: Shape, seed: int) -> dict[str, Array]:
        """Return an input array as bit patterns, and random words if rounding is stochastic."""
        count, task = math.prod(scales_shape(shape, self.blocks)), self.task
        made = [_blocks_of_tensor(task, count, seed)] if task.has_tensor else list(_blocks(task, count, seed))
        return {
            name: from_blocks(np.concatenate([one[name] for one in made]), shape, self.blocks)
            for name in made[0]
            if name in ("x", "random")
        }

    def _codes(self, shape: Shape, seed: int) -> dict[str, Array]:
        rng = Generator(seed)
        codes = rng.integers(0, (1 << self.task.element.bits) - 1, shape).astype(np.uint8)
        bits = self.task.scale_bits
        of_scales = rng.integers(0, (1 << bits) - 1, scales_shape(shape, self.blocks)).astype(code_dtype(bits))
        return {"codes": codes, "scales": of_scales}

    def _tensor(self, inputs: dict[str, Array], seed: int) -> Columns:
        """Return an array's largest finite magnitude and its tensor scale, as a batch of one row.

        Codes do not determine the largest magnitude of a tensor. If the inputs are codes, the
        method chooses one of the magnitudes from `largest_of_tensors` by the seed.
        """
        if not self.task.has_tensor:
            return {}
        if "x" in inputs:
            largest = int(by_numpy.largest_of(as_floats(inputs["x"], self.task.source)))
        else:
            known = largest_of_tensors(self.task)
            largest = known[seed % len(known)]
        return with_tensor(self.task, {"largest": np.array([[largest]])})

    def _answers(
        self, implementation: calling.Implementation, inputs: dict[str, Array], shape: Shape, layout: str
    ) -> dict[str, Array]:
        """Call the function, and return its codes and scales, or the bit patterns of its floats."""
        task = self.task
        rows, columns = scales_shape(shape, self.blocks)
        if task.takes_codes:
            codes, scales = laid(inputs["codes"], layout), self._lying(inputs["scales"])
            if self.packed:
                some = np.zeros((rows, columns), np.uint8)  # the scales do not matter, since `pack` packs codes only
                q = mx.MXArray.from_parts(inputs["codes"], some, mx.MXFormat(task.element), blocks=self.blocks)
                codes = laid(q.pack(), layout)
            if task.scale_bits > 8:
                scales = scales.view(scale_dtype(task.format.scale))
            values = calling.read_floats(implementation.call(codes, scales), "function: value", task, shape)
            return {"value": as_bits(values, task.source)}
        arguments = [as_floats_there(laid(inputs["x"], layout), task)]
        if task.is_stochastic:
            arguments.append(laid(inputs["random"], layout))
        result = implementation.call(*arguments)
        answered_codes, of_scales = calling.both(result) if len(task.outputs) == 2 else (None, result)
        if self.scales == "transposed":
            scales = calling.read_scale_codes(of_scales, "function: scale", (columns, rows), scale=task.format.scale).T
        else:
            scales = calling.read_scale_codes(
                of_scales, "function: scale", (rows, columns), self.scales, scale=task.format.scale
            )
        answers = {"scale": fitted(scales, task.scale_bits)}
        if answered_codes is not None:
            bits = task.element.bits
            given = tuple(getattr(answered_codes, "shape", ()))
            self.packs |= given == calling.packed_shape(shape, bits) != shape
            answers["codes"] = fitted(
                calling.read_element_codes(answered_codes, "function: codes", task, shape, self.packs), bits
            )
        return answers

    def _lying(self, scales: Array) -> Array:
        """Return the scales in the layout that the function expects."""
        if self.scales == "swizzled":
            from mxnum.interop.swizzle import swizzle_scales

            return swizzle_scales(scales)
        return np.ascontiguousarray(scales.T) if self.scales == "transposed" else scales.copy()


def as_floats_there(view: Array, task: Task) -> Array:
    """Return the floats whose bit patterns `view` holds, in the same memory."""
    return view.view(as_floats(np.zeros(1, view.dtype), task.source).dtype)


def _blocks_of_tensor(task: Task, count: int, seed: int) -> Columns:
    """Return `count` blocks of finite numbers, chosen from random cases (level 2) of one tensor.

    A NaN or an infinity in one block would make the tensor scale useless for all blocks.
    """
    (made,) = cases(task, level=2, seed=seed & ((1 << 64) - 1), count=ROWS)
    finite = np.flatnonzero(np.isfinite(as_magnitudes(made["x"], task.source)).all(axis=1))
    rows = finite[Generator(seed).integers(0, len(finite) - 1, count)]
    return select(made, rows)


def _blocks(task: Task, count: int, seed: int) -> Iterator[Columns]:
    """Yield batches of random cases (level 2), which have `count` blocks in all."""
    # To save time, draw a few hundred thousand numbers, and repeat them in larger arrays.
    limit = max(1, min(count, LARGE * 4 // task.block))
    made = list(cases(task, level=2, seed=seed & ((1 << 64) - 1), count=limit))
    have = 0
    while have < count:
        for one in made:
            rows = min(len(one["x"]), count - have)
            if rows > 0:
                yield select(one, slice(rows))
                have += rows
