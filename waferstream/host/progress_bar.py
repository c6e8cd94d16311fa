"""A progress bar that follows steps by itself, below everything else that is printed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack

from tqdm import tqdm

from waferstream.host.terminal import printing_above, repeated

_LOOK_S = 0.2


class ProgressBar:
    """Progress bar on stderr if that is a terminal; otherwise no bar, so that logs stay clean.

    The bar follows the steps that ``look`` tells, also while nobody calls it.

    Args:
        description: What is in progress.
        first: The first step.
        last: The last step.
        look: Returns the newest step that has begun; called in a thread.
        unit: What a step is.
    """

    def __init__(
        self,
        description: str,
        first: int,
        last: int,
        look: Callable[[], int],
        unit: str = "step",
    ) -> None:
        self._bar = tqdm(
            desc=description,
            total=last - first + 1,
            unit=unit,
            leave=False,
            dynamic_ncols=True,
            disable=None,
        )
        self._first, self._last, self._look = first, last, look
        self._changing = threading.Lock()
        self._has_begun = False
        self._following = ExitStack()
        if not self._bar.disable:
            self._following.enter_context(printing_above())
            self._following.enter_context(repeated(self.follow, _LOOK_S))

    @property
    def done(self) -> int:
        """The number of steps that the bar shows as done."""
        return int(self._bar.n)

    def follow(self) -> None:
        """Advance to the step before the newest one that has begun."""
        newest = self._look()
        if newest < self._first:
            return
        with self._changing:
            if not self._has_begun:
                self._has_begun = True
                self._bar.unpause()  # the rate counts from here
            self._bar.update(max(newest - self._first - self._bar.n, 0))

    def reach(self, step: int) -> None:
        """Show that a step, and all before, are done; later ones run again."""
        if not self._bar.disable:
            with self._changing:
                self._bar.update(step - self._first + 1 - self._bar.n)

    def write(self, line: str) -> None:
        """Print a line on stdout, above the bar, and flush it."""
        self._bar.write(line)
        sys.stdout.flush()

    def close(self) -> None:
        """Remove the bar. Idempotent."""
        self._following.close()
        self._bar.close()
