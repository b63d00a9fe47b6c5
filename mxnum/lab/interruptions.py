"""Delay Ctrl-C and SIGTERM until a training step is complete, so that saved state is consistent."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_WATCHED = (signal.SIGINT, signal.SIGTERM)


class Interruptions:
    """A context manager that stores Ctrl-C and SIGTERM in `waiting` until `deliver` is called.

    `deliver` runs the usual handler of a stored signal. The context manager does not store signals
    that the process ignores. Python delivers signals to the main thread only, so the context
    manager does nothing in other threads.
    """

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruptions:
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in _WATCHED}
            self._before = {n: h for n, h in handlers.items() if h not in (signal.SIG_IGN, None)}
            for number in self._before:
                signal.signal(number, self._keep)
        return self

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self.waiting.append(number)

    def deliver(self) -> None:
        """Raise the first waiting signal, if there is one, so that its usual handler runs."""
        if self.waiting:
            number = self.waiting.pop(0)
            signal.signal(number, self._before[number])
            signal.raise_signal(number)
            signal.signal(number, self._keep)  # if the handler returned, training continues

    def __exit__(self, kind: type | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is None and self.waiting:
            signal.raise_signal(self.waiting[0])
