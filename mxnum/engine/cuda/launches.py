"""Functions that queue work on a GPU and convert arrays to arguments of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mxnum.engine.cuda import arrays, driver, kernels
from mxnum.layout import Blocks
from mxnum.memory.device import DeviceArray

NO_KEY = (0, 0, 0, 0, 0)


@contextmanager
def queue(leader: DeviceArray, *others: DeviceArray | None) -> Iterator[int | None]:
    """Yield the stream of `leader`, on which the caller queues work.

    The caller's work starts after all earlier work on the streams of `others`. Work that is queued
    later on the streams of `others` starts after the caller's work.
    """
    driver.check()
    streams = {other.stream for other in others if other is not None and other.stream is not None}
    with driver.on_gpu(leader.gpu):
        for stream in streams:
            driver.wait(leader.stream, stream)
        yield leader.stream
        for stream in streams:
            driver.wait(stream, leader.stream)


def refuse(**options: Any) -> None:
    """Raise ValueError if an option that only the host's engine supports is not None."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"Argument {name!r} must be left out for arrays on a GPU.")


def map_over(
    kernel: Any,
    blocks: Blocks,
    operands: tuple[DeviceArray, DeviceArray, DeviceArray | None],
    out: DeviceArray,
    stream: int | None,
    *,
    words: DeviceArray | None = None,
    key: tuple[int, int, int, int, int] = NO_KEY,
    signed: bool | None = None,
) -> None:
    """Run a kernel of the module `kernels` that processes one element at a time.

    `operands` has three items: the elements, the scales, and the offsets or tensor scales or None.
    """
    source, scales, offsets = operands
    others = scales if offsets is None else offsets, source if words is None else words
    shape = padded(source.shape, 1)
    is_float = source.dtype.itemsize > 1 or signed is True
    in_order = [(source, is_float), (scales, False), (others[0], False), (others[1], False)]
    arguments: list[Any] = [shape, padded(blocks, 1)]
    for view, is_signed in in_order:
        memory, at = driver.memory(view, signed=is_signed)
        arguments += [memory, at, padded(arrays.steps_of(view), 0)]
    arguments.append(key)
    memory, at = driver.memory(out, signed=out.dtype.itemsize == 8 if signed is None else signed)
    arguments += [memory, at, padded(arrays.steps_of(out), 0)]
    driver.launch(kernel, source.size, stream, source.size, *arguments)


def by_blocks(
    kernel: Any,
    blocks: Blocks,
    x: DeviceArray,
    given: DeviceArray,
    tensor: DeviceArray,
    scales: DeviceArray,
    offsets: DeviceArray | None,
    stream: int | None,
) -> None:
    """Run a kernel of the module `kernels` that processes one block at a time."""
    # Each thread iterates along the last axis, so the axis with the longest blocks comes last.
    axes = padded_axes(x.ndim)
    order = sorted(range(len(axes)), key=lambda axis: padded(blocks, 1)[axis])
    shape, blocks, counts = (
        tuple(padded(values, 1)[axis] for axis in order) for values in (x.shape, blocks, scales.shape)
    )
    source, source_at = driver.memory(x, signed=True)
    codes, codes_at = driver.memory(given, signed=False)
    tensors, tensors_at = driver.memory(tensor, signed=False)
    source_by, codes_by, tensors_by, scales_by = (
        tuple(padded(arrays.steps_of(view), 0)[axis] for axis in order) for view in (x, given, tensor, scales)
    )
    driver.launch(
        kernel, scales.size, stream, scales.size, shape, blocks, counts, source, source_at, source_by, codes, codes_at,
        codes_by, tensors, tensors_at, tensors_by, flat(scales), scales_by,
        flat(scales if offsets is None else offsets),
    )  # fmt: skip


def padded_axes(rank: int) -> range:
    """Return the axis indices of an array of `rank` axes, after padding to at least two axes."""
    return range(max(rank, 2))


def padded(values: tuple[int, ...], filling: int) -> tuple[int, ...]:
    """Return `values`; if there are fewer than two, put `filling` in front to get two values."""
    return (*(filling,) * (2 - len(values)), *values)


def flat(view: DeviceArray, signed: bool | None = None) -> Any:
    """Return a contiguous array as a vector of integers.

    By default, integers of 64 bits are signed, and narrower integers are unsigned.
    """
    width = view.dtype.itemsize
    as_signed = width == 8 if signed is None else signed
    return driver.at_address(view.pointer, view.size, f"{'i' if as_signed else 'u'}{width}", view.owner)


def random_source(random: Any) -> tuple[str, int, tuple[int, int, int, int, int]]:
    """Return the kind of random source, the random bits per element, and the Philox key."""
    if random is None:
        return kernels.NOWHERE, 0, NO_KEY
    if random.words is not None:
        return kernels.WORDS, random.sr_bits, NO_KEY
    return kernels.SEED, random.sr_bits, (*random.key, random.first)


def words_of(random: Any) -> Any:
    """Return the array of random words that the caller gave, or None."""
    return None if random is None else random.words
