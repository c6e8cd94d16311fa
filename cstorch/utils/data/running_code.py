"""Whether the code that iterates over a loop still runs.

A generator is not closed while a traceback holds the code that an exception has ended, as that of
the last failed cell of a notebook.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType


def is_executing(frame: FrameType | None) -> bool:
    """Return whether a frame is on the stack of a thread; None is on none."""
    tops = sys._current_frames().values()
    return frame is not None and any(frame is one for top in tops for one in _stack(top))


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and all that wait for it."""
    while frame is not None:
        yield frame
        frame = frame.f_back
