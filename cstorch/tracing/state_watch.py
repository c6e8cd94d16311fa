"""Decide at each call of a traced step whether its Python has to run again.

The Python of a step is recorded, and a program of the cluster takes its place. What Python reads
besides tensors (a counter of the model, a schedule of the program, a clock) is a constant of that
program. So Python runs

    in the first two steps   always: what differs between two recordings of one state is read from
                             where nobody can look, such as a clock
    in every step            if a run has changed state that it can read, or two of them differ
    after a change           if the program around the step has changed state that it can read

and the recording decides whether the program of the cluster stays.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from cstorch.tracing.call import Call, is_constant
from cstorch.tracing.python_state import PythonState

log = logging.getLogger("waferstream")


class StateWatch:
    """The state in Python that one traced step can read.

    Args:
        call: The first call of the step.
        model: The model of the program.
    """

    def __init__(self, call: Call, model: nn.Module) -> None:
        objects = [x for x in call.leaves if not isinstance(x, torch.Tensor) and not is_constant(x)]
        self._roots = (call.function, model, *objects)
        self._state: PythonState | None = None
        self._num_runs = 0
        self._is_cost_noted = False
        self.has_checked_counts = False
        """Whether it is known that what a run counts does not follow the samples."""
        self._has_moved = False  # the last run has changed the state
        self._is_new = False  # the state before the last run is not that before the run before it
        self._reads_hidden = False  # two runs of one state were not equal

    def must_run(self) -> bool:
        """Return whether the next step may need another program than the last one."""
        assert self._state is not None, "a step is installed after it has run"
        self._is_new = self._has_moved or not self._state.is_current()
        return self._num_runs < 2 or self._is_new or self._reads_hidden

    def note_cost(self, seconds: float) -> None:
        """Say once that a step changes state which decides nothing, and what that costs."""
        if self._num_runs > 2 and self._has_moved and not self._is_cost_noted:
            self._is_cost_noted = True
            log.info(
                "The traced step changes state in Python, so that its Python runs in every step"
                " (%.2f s each); count in the loop or in a @cstorch.step_closure, where it costs"
                " nothing",
                seconds,
            )

    @contextmanager
    def running(self) -> Iterator[PythonState]:
        """Watch the Python of the step run inside the block; yield the state before it."""
        before = PythonState(*self._roots)
        yield before
        self._num_runs += 1
        self._state = PythonState(*self._roots)
        if self._state.mark_traced():
            self._state = PythonState(*self._roots)
        self._has_moved = before.has_drawn() or not before.is_current()

    def note_other_graph(self) -> None:
        """Note that the last run has recorded another graph than the one before."""
        self._reads_hidden |= not self._is_new
