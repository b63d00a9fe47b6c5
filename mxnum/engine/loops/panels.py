"""The conversion of one panel, which all loops over panels share."""

from __future__ import annotations

from mxnum.definition.word import dialect
from mxnum.engine.machine.kernels import call_kernel


@dialect
def convert_panel(kernels, x, out, tables, numbers, words, buffer, offset, panel, share, at):
    """Convert the rows of a panel by a kernel, and draw their random bits row by row.

    `kernels` are the kernel for elements and `Draw.address`. The tables hold what the kernel reads
    for each column or block. `words`, `buffer` and `offset` are for random bits. `at` holds two
    integers for the kernel: it receives (first element, width, rows, columns, run, *at, offset of
    random bits). Arrays are arguments by themselves: numba would count references to arrays in a
    tuple by atomic operations, which take a twentieth of the time of NVFP4.
    """
    elements, fill = kernels
    shape, _ = share
    _, columns, _, run, _ = shape
    base, rows, width = panel.first_row * columns + panel.column, panel.last_row - panel.first_row, panel.width
    if fill == 0:
        where = base, width, rows, columns, run, at[0], at[1], 0
        call_kernel(elements, x, out, tables, buffer, numbers, where)
    else:
        for row in range(rows):
            first = base + row * columns
            call_kernel(fill, words, buffer, offset, buffer, buffer, (first, width, 0, 0, 0, 0, 0, 0))
            where = first, width, 1, columns, run, at[0], at[1], offset[0]
            call_kernel(elements, x, out, tables, buffer, numbers, where)
