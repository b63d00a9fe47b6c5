"""Mistakes planted by hand in loops, offsets and random bits.

The columns of each row are name, file, old text, new text, effect, tests.
"""

# ruff: noqa: E501 (each row of the table has long lines)

from __future__ import annotations

FOLDER, HOST = "tests/engine/loops", "tests/engine/quantizing/test_host.py"
PARTS, LAYOUTS = (
    "tests/engine/traversal/test_parts.py",
    "tests/engine/quantizing/test_transforms.py::test_every_layout_equals_the_definition",
)
RANDOM_BITS, COLUMNS = f"{FOLDER}/test_random_bits.py", f"{FOLDER}/test_columns.py"
IN_ROWS, IN_COLUMNS = "mxnum/engine/loops/rows.py", "mxnum/engine/loops/columns.py"
IN_PANELS = "mxnum/engine/loops/panels.py"
IN_MARKED, PLAN = "mxnum/engine/loops/marked.py", "mxnum/engine/quantizing/plan.py"

LOOPS = (
    # Loops along rows
    (
        "rows-number-of-the-short-block",
        IN_ROWS,
        "return row * per_row + per_row - 1, 1, length - full * run",
        "return row * per_row, 1, length - full * run",
        "A short last block has the mark of the first group.",
        (f"{FOLDER}/test_rows.py::test_groups_cover_a_row",),
    ),
    (
        "rows-last-element-of-a-block",
        IN_PANELS,
        "                for i in range(start, stop):\n                    largest =",
        "                for i in range(start, stop - 1):\n                    largest =",
        "The scale ignores the last element of a block if `USUAL_RUN` does not divide the block length.",
        (f"{HOST}::test_rows_of_blocks_that_registers_do_not_divide",),
    ),
    (
        "rows-short-block-not-marked",
        IN_ROWS,
        "                if leaves_rest and width != run:\n                    marks[number] = MIXED\n",
        "                if leaves_rest and width != run:\n",
        "The short block at the end of a row is skipped without a mark, so no loop converts it.",
        ("tests/engine/quantizing/test_powers_of_two.py::test_what_is_marked_is_redone_and_nothing_else",),
    ),
    (
        "packed-group-elsewhere",
        IN_ROWS,
        "out, base * bits // 8)",
        "out, place * bits // 8)",
        "The packed codes of a group are written where the codes of another group belong.",
        ("tests/engine/quantizing/test_packed.py::test_every_format",),
    ),
    (
        "redone-codes-not-packed",
        PLAN,
        "pack(codes, bits, written.reshape(len(codes), -1))",
        "pass",
        "Redone codes stay in the unpacked copy, and are not packed into the result.",
        ("tests/engine/quantizing/test_packed.py::test_other_float_environments_take_integers",),
    ),
    (
        "uncompiled-without-stream",
        "mxnum/engine/uncompiled.py",
        "random_words(index + random.first, random.seed, random.stream)",
        "random_words(index + random.first, random.seed, 0)",
        "Without numba all streams have the same random bits.",
        ("tests/engine/test_uncompiled.py::test_arrays_bytes_and_values_are_the_same",),
    ),
    (
        "rows-largest-not-looked-at",
        IN_ROWS,
        "is_right = is_right and integer(widen(word(most))) <= limits.greatest_x",
        "is_right = is_right",
        "Groups with NaN or infinities are not marked, so the fast formulation converts them.",
        (f"{HOST}::test_every_type",),
    ),
    (
        "rows-scales-beyond-the-domain",
        IN_ROWS,
        "is_right = least >= limits.least_scale and greatest <= limits.greatest_scale",
        "is_right = greatest <= limits.greatest_scale",
        "Groups with scales too small for float additions are not marked.",
        (f"{HOST}::test_every_element_and_scale_rule",),
    ),
    (
        "rows-nan-scale-of-zeros",
        IN_ROWS,
        "if integer(magnitude) == 0 and scale < NAN_SCALE else scale",
        "if integer(magnitude) == 0 else scale",
        "A block of zeros is quantized to zeros even if its given scale is NaN.",
        (f"{HOST}::test_given_scales",),
    ),
    (
        "rows-bits-of-one-block",
        IN_ROWS,
        "where = piece, blocks * size, 0, 0, 0, 0, 0, 0",
        "where = piece, size, 0, 0, 0, 0, 0, 0",
        "Only the first block of each group is rounded with new random bits.",
        (f"{HOST}::test_every_rounding_and_overflow",),
    ),
    (
        "rows-bits-of-long-blocks",
        IN_ROWS,
        "where = piece, blocks * size, 0, 0, 0, 0, 0, 0",
        "where = base, blocks * size, 0, 0, 0, 0, 0, 0",
        "Every piece of a long block is rounded with the random bits of the first piece.",
        (f"{HOST}::test_a_block_longer_than_what_is_drawn_at_a_time",),
    ),
    (
        "marked-nan-in-a-later-block",
        IN_MARKED,
        "if specials[b] != 0:",
        "if specials[0] != 0:",
        "A NaN in the first block of a panel makes all scales of the panel NaN; a NaN in another block makes no scale NaN.",
        (f"{HOST}::test_special_values_by_policy",),
    ),
    (
        "rows-last-scale-not-looked-at",
        IN_ROWS,
        "scales_lie(scales, row * per_row + begin, end - begin, limits)",
        "scales_lie(scales, row * per_row + begin, end - begin - 1, limits)",
        "The loop does not check if the last scale lies in the domain of decoding.",
        (f"{HOST}::test_every_code_under_every_scale_dequantizes_as_defined",),
    ),
    (
        "rows-second-of-a-pair",
        IN_ROWS,
        "scale = select((i & SHORT_RUN) == 0, one, other)",
        "scale = one",
        "If two blocks are decoded together, the second block is decoded with the scale of the first.",
        (f"{HOST}::test_every_layout",),
    ),
    # Loops along columns
    (
        "columns-short-band",
        IN_PANELS,
        "band // bands * rows + min(begin + k, rows)",
        "band // bands * rows + begin + k",
        "A short last band continues in the next plane.",
        (f"{COLUMNS}::test_bands_of_all_planes",),
    ),
    (
        "marked-short-block-with-others",
        IN_PANELS,
        "number = band * in_band + (in_band - 1 if is_short else column // panel)",
        "number = band * in_band + column // panel",
        "A short last block uses the mark of the panel before it.",
        (f"{FOLDER}/test_rows.py::test_groups_cover_a_row",),
    ),
    (
        "columns-old-maxima",
        IN_PANELS,
        "        for j in range(panel.blocks * run):\n            store(high, j, 0)",
        "        for j in range(panel.width):\n            store(high, j, 0)",
        "Column maxima of an earlier panel affect the scale of a short last block.",
        (f"{COLUMNS}::test_panels_and_what_is_left_of_them",),
    ),
    (
        "columns-mark-of-another-panel",
        IN_COLUMNS,
        "                marks[panel.number] = MIXED\n                skipped += 1\n                continue\n            for b",
        "                marks[0] = MIXED\n                skipped += 1\n                continue\n            for b",
        "The loop marks the first panel instead of the panel that it skips.",
        (f"{COLUMNS}::test_panels_and_what_is_left_of_them",),
    ),
    (
        "columns-random-bits-of-half",
        IN_PANELS,
        "(first, width, 0, 0, 0, 0, 0, 0)",
        "(first, width // 2, 0, 0, 0, 0, 0, 0)",
        "The second half of a panel is rounded with old random bits.",
        (f"{COLUMNS}::test_panels_and_what_is_left_of_them",),
    ),
    (
        "columns-greatest-scale-of-decoding",
        IN_COLUMNS,
        "if least < limits.least_scale or greatest > limits.greatest_scale:",
        "if least < limits.least_scale:",
        "NaN scales of columns are decoded as numbers.",
        (f"{HOST}::test_special_values_by_policy",),
    ),
    (
        "marked-nan-results",
        IN_MARKED,
        "select(scale == NAN_SCALE, word(nan), result)",
        "result",
        "Elements of a block with the scale NaN are converted as if the scale were a number.",
        (f"{HOST}::test_special_values_by_policy",),
    ),
    # Offsets
    (
        "offsets-of-constant-blocks",
        "mxnum/engine/loops/offsets.py",
        "is_empty = z > a",
        "is_empty = z >= a",
        "A block of equal numbers gets the offset 0, as if it had no finite element.",
        (LAYOUTS,),
    ),
    (
        "offsets-of-nan-blocks",
        "mxnum/engine/quantizing/offsets.py",
        "                offsets[scales == E8M0.nan_code] = 0\n",
        "",
        "The offset of a block with the scale NaN is not set to 0.",
        (LAYOUTS,),
    ),
    (
        "offsets-infinite",
        "mxnum/engine/loops/offsets.py",
        "(offsets & 0x7FFF) <= OFFSET.max_code",
        "(offsets & 0x7FFF) <= OFFSET.max_code + 1",
        "Infinite offsets are added by float additions.",
        (f"{FOLDER}/test_offsets.py::test_what_may_be_added",),
    ),
    (
        "offsets-in-any-environment",
        "mxnum/engine/quantizing/offsets.py",
        "by_floats = subtracts_fast and workers.may_use_floats()",
        "by_floats = subtracts_fast",
        "Float operations subtract offsets even if the processor rounds in another direction.",
        ("tests/test_float_environment.py",),
    ),
    (
        "offsets-half-range",
        "mxnum/engine/quantizing/offsets.py",
        "scales_given=asked.scales_given or in_halves",
        "scales_given=asked.scales_given",
        "Scales computed from the differences overwrite the scales computed from half the range.",
        (LAYOUTS,),
    ),
    # Random bits
    (
        "bits-from-the-middle-of-a-counter",
        "mxnum/engine/loops/random_bits.py",
        "return index & 3",
        "return index & 1",
        "A piece that begins at the third or fourth word of a counter gets the words of other elements.",
        (RANDOM_BITS,),
    ),
    (
        "bits-of-late-counters",
        "mxnum/engine/loops/random_bits.py",
        "low, high = lane((first + i) & 0xFFFFFFFF), lane((first + i) >> 32)",
        "low, high = lane((first + i) & 0xFFFFFFFF), lane(first >> 32)",
        "Counters do not carry into their upper half.",
        (RANDOM_BITS,),
    ),
    (
        "bits-of-long-rows",
        "mxnum/engine/loops/random_bits.py",
        "count = min(_PIECE, length - begin)\n                place = philox_bits(key, buffer, firsts[row] + begin, count)",
        "count = min(_PIECE, length - begin)\n                place = philox_bits(key, buffer, firsts[row], count)",
        "Long rows of words repeat their first piece.",
        (f"{RANDOM_BITS}::test_rows_of_words",),
    ),
    (
        "bits-of-turned-parts",
        "mxnum/engine/loops/random_bits.py",
        "along = [where[self.order.index(axis)] for axis in range(len(where))]",
        "along = [where[self.order[axis]] for axis in range(len(where))]",
        "If three axes are permuted cyclically, elements get the words of other elements.",
        (f"{PARTS}::test_seeded_words_go_with_their_elements",),
    ),
    (
        "philox-in-vectors-upper-counter",
        "mxnum/engine/loops/random_bits.py",
        "c1 = self.upper(c0)",
        "c1 = self.lower(c0)",
        "The upper half of each counter is a copy of its lower half.",
        (f"{FOLDER}/test_philox.py",),
    ),
)
