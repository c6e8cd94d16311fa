"""The steps of training that a program counts, over loops and over its restarts."""

from __future__ import annotations


class StepCount:
    """How many steps of training are done, and after which one this program began."""

    def __init__(self) -> None:
        self.done = 0
        self.restored = 0
        """The step that a restored checkpoint has begun at: steps before it count."""
        self.resumed = 0
        """The step after which a program goes on with states that it has loaded."""
        self._loaded_updates = self._loaded_skips = 0

    def restore(self, step: int) -> None:
        """Begin after the step of a restored checkpoint."""
        self.done = self.restored = step
        self.resumed = 0

    def note_loaded(self, updates: int | None = None, skips: int | None = None) -> None:
        """Begin after the steps that loaded states have seen, unless steps were done here.

        So random ops do not draw the numbers of the first steps again.

        Args:
            updates: Updates that the state of an optimizer has seen.
            skips: Steps that a loss scale has skipped because of an overflow.
        """
        if self.done != self.resumed or self.restored:
            return
        self._loaded_updates = self._loaded_updates if updates is None else updates
        self._loaded_skips = self._loaded_skips if skips is None else skips
        done = self._loaded_updates + self._loaded_skips
        self.done = self.resumed = done if self._loaded_updates else 0
