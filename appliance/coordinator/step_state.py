"""Step state: buffers that programs write, which the coordinator holds.

Micro-batches are computed side by side; what they contribute to a buffer comes back with their
results. The coordinator applies the contributions of one micro-batch after the other, in index
order, as a plain loop over the micro-batches does: the cluster's shape cannot change a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from waferstream.compiler.results.step_means import closed
from waferstream.core.program.program import Program, ProgramKind
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.role import Value

Update = Callable[..., tuple[Any, ...]]

MOST_BYTES = 64 * 2**20
"""Contributions of a job; a longer run is cut into several jobs, which changes no result."""


class StateHolder:
    """The buffers that installed programs read or write, by name."""

    def __init__(self) -> None:
        self.values: dict[str, torch.Tensor] = {}
        self._updates: dict[ProgramKind, list[Update]] = {}  # of each size of micro-batches

    def install(self, installation: Installation) -> None:
        """Keep the update of a program."""
        updates = [sized.state_update for sized in installation.sized]
        self._updates[installation.kind] = [update.build() for update in updates if update]

    def fill(self, values: Mapping[str, torch.Tensor]) -> None:
        """Copy values of buffers."""
        self.values.update({name: value.detach().clone() for name, value in values.items()})

    def arrays(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Return copies of buffers; half dtypes become fp32, as numpy lacks one of them."""
        return {
            name: (value.float() if value.dtype == torch.bfloat16 else value).numpy().copy()
            for name in names
            if (value := self.values.get(name)) is not None
        }

    def read_by(self, program: Program) -> dict[str, torch.Tensor]:
        """Return the buffers that the kernels of a program read, and the inputs of the step."""
        names = [spec.name for spec in program.state.reads]
        names += [each.name for each in program.step_inputs]
        return {name: self.values[name] for name in names}

    def advance(self, program: Program, parts: Sequence[Sequence[Value]]) -> dict[int, Value]:
        """Apply the contributions of a step; return the step results that depend on the buffers.

        Args:
            program: The program of the step.
            parts: What each micro-batch has returned, in index order.
        """
        state = program.state
        if not state.writes:
            return {}
        returned: tuple[Any, ...] = ()
        for index, part in enumerate(parts):
            update = self._updates[program.kind][program.is_short(index)]
            arguments = [self.values[name] for name in state.arguments]
            contributions = part[program.num_results : program.guarded.start]
            returned = update(*arguments, *contributions)
            news = dict(zip((spec.name for spec in state.writes), returned, strict=False))
            # A copy, since a value may be a view of a contribution or of another buffer.
            self.values.update({name: new.clone() for name, new in news.items()})
        for mean in state.means:
            self.values.update(closed(mean, self.values))
        return dict(zip(state.results, returned[len(state.writes) :], strict=True))


def steps_per_job(program: Program) -> int | None:
    """Return how many steps a job may have, None for any.

    Its contributions have to stay small, and nodes learn the values of buffers when it begins.
    """
    state = program.state
    if state.means:  # the next step reads them
        return 1
    if not state.contributions:
        return None
    num_bytes = sum(spec.num_bytes for spec in state.contributions) * program.num_micro_batches
    return max(1, MOST_BYTES // max(1, num_bytes))
