"""Updates that parameters have missed: torch counts only those of steps with a gradient."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import torch


class MissedUpdates:
    """How many updates of an optimizer each of its parameters has missed.

    A parameter misses the updates of steps in which it is frozen, and those before its group was
    added.
    """

    def __init__(self) -> None:
        self._missed: dict[torch.Tensor, int] = {}
        self._frozen_at: dict[torch.Tensor, int] = {}  # after so many updates
        self._known: set[torch.Tensor] = set()

    def note_trained(
        self, parameters: Iterable[torch.Tensor], trained: Collection[torch.Tensor], updates: int
    ) -> None:
        """Note which parameters have gradients from now on.

        Args:
            parameters: Those of the optimizer.
            trained: Those with gradients.
            updates: The updates so far.
        """
        parameters = list(parameters)
        for parameter in parameters:
            if self._known and parameter not in self._known:
                self._missed[parameter] = updates
            if parameter not in trained:
                self._frozen_at.setdefault(parameter, updates)
            elif parameter in self._frozen_at:
                now = self.of(parameter, updates)
                del self._frozen_at[parameter]
                self._missed[parameter] = now
        self._known.update(parameters)

    def of(self, parameter: torch.Tensor, updates: int) -> int:
        """Return the updates that a parameter has missed after so many of its optimizer."""
        since = updates - self._frozen_at.get(parameter, updates)
        return self._missed.get(parameter, 0) + since

    def reload(self, missed: Mapping[torch.Tensor, int]) -> None:
        """Take other numbers, with a state that was loaded."""
        self._missed, self._frozen_at, self._known = dict(missed), {}, set()
