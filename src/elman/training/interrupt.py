"""Ctrl-C that waits for the current step."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class DeferredInterrupt:
    """Within ``with``, the first SIGINT sets :attr:`requested`; the second raises KeyboardInterrupt at once.

    The handler that was there is put back on leaving, and before the second raises. Python delivers signals to the main
    thread alone; in another thread, or where SIGINT is ignored or handled outside Python, nothing is installed.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: Any = None

    def __enter__(self) -> DeferredInterrupt:
        previous = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(previous):
            self._previous = previous
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()

    def _restore(self) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        """Note the first signal, obey the second."""
        if self.requested:
            self._restore()  # at once: the exception may reach __exit__ in the middle, which then does not
            raise KeyboardInterrupt
        self.requested = True
