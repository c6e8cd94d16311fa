"""Several optimizers over disjoint parameters that one traced step steps: one update in MemoryX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch

from cstorch.optim.state import OptimizerState, state_of
from cstorch.recording.recorded import RecordedOptimizer, RecordedScheduler
from cstorch.sparse.masks import MaskView
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.optimizer import OptimizerSpec

_REMEDY = "give each optimizer its own parameters, or trace a step for each"


class JoinedOptimizers:
    """The optimizers of one step, as one."""

    def __init__(self, optimizers: Sequence[RecordedOptimizer]) -> None:
        self._optimizers = tuple(optimizers)
        parameters = [p for group in self.param_groups for p in group["params"]]
        if len({*parameters}) < len(parameters):
            raise _refusal("two optimizer steps of one parameter", "optimizer-stepped-twice")
        states = [state for each in optimizers if (state := state_of(each)) is not None]
        self.remote_state = JoinedState(states)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all."""
        return [group for each in self._optimizers for group in each.param_groups]

    def joined_with(self, other: RecordedOptimizer) -> JoinedOptimizers:
        """Return these optimizers and another one."""
        return JoinedOptimizers((*self._optimizers, other))

    def spec(
        self,
        names: Mapping[torch.Tensor, str],
        schedulers: Sequence[RecordedScheduler],
        done: int,
        num_steps: int,
    ) -> OptimizerSpec:
        """Return the update as data; arguments as of ``Recorder.spec``.

        Updates of an optimizer that has done fewer than another are missed ones of its parameters.
        """
        specs = [each.spec(names, schedulers, done, num_steps) for each in self._optimizers]
        if len({spec.rule for spec in specs}) > 1:
            raise _refusal("two optimizers of one step have different rules", "optimizers-differ")
        earlier = max(spec.earlier_updates for spec in specs)
        missed = {
            name: spec.missed.get(name, 0) + earlier - spec.earlier_updates
            for spec in specs
            for group in spec.groups
            for name in group.names
        }
        return replace(
            specs[0],
            groups=tuple(group for spec in specs for group in spec.groups),
            earlier_updates=earlier,
            missed={name: count for name, count in missed.items() if count},
            sparsity=tuple(weight for spec in specs for weight in spec.sparsity),
        )

    def report_sparsity(self, updates: int) -> None:
        """Call the hooks of the sparsity of each."""
        for each in self._optimizers:
            each.report_sparsity(updates)

    def hooks(self) -> tuple[Any, ...]:
        """Return the hooks of the steps of all."""
        return tuple(hook for each in self._optimizers for hook in each.hooks())

    def settings(self, schedulers: Sequence[RecordedScheduler]) -> list[object]:
        """Return all that decides further updates and that no scheduler sets."""
        return [each.settings(schedulers) for each in self._optimizers]


class JoinedState(OptimizerState):
    """The states of several optimizers, which MemoryX holds together."""

    def __init__(self, parts: Sequence[OptimizerState]) -> None:
        self._parts = tuple(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JoinedState) and other._parts == self._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @property
    def updates(self) -> int:
        """The most updates that a part has seen."""
        return max(part.updates for part in self._parts)

    @property
    def masks(self) -> MaskView | None:  # type: ignore[override]
        """The masks of the only part that may have some."""
        return next((part.masks for part in self._parts if part.masks is not None), None)

    def note_done(self, steps: int) -> None:
        for part in self._parts:
            part.note_done(steps)

    def note_trained(self, names: Any) -> None:
        for part in self._parts:
            part.note_trained(names)

    def settle(self) -> None:
        self._parts[0].settle()

    def holds(self, state: Mapping[Any, Mapping[str, Any]]) -> bool:
        return any(part.holds(state) for part in self._parts)

    def description(self) -> dict[str, Any]:
        described = [part.description() for part in self._parts]
        updates, missed, groups, start = self.updates, {}, [], 0
        for part in described:
            behind = updates - part["updates"]
            for group in part["param_groups"]:
                places = range(start, start + len(group["params"]))
                groups.append({**group, "params": list(places)})
                start += len(places)
                for name in group["param_names"] or ():
                    missed[name] = part.get("missed", {}).get(name, 0) + behind
        missed = {name: count for name, count in missed.items() if count}
        counts = {"updates": updates, **({"missed": missed} if missed else {})}
        return {**counts, "param_groups": groups}

    def take_changes(self) -> dict[str, torch.Tensor]:
        return {name: t for part in self._parts for name, t in part.take_changes().items()}

    def take_masks(self) -> dict[str, torch.Tensor]:
        return {name: t for part in self._parts for name, t in part.take_masks().items()}

    def outdate(self) -> None:
        for part in self._parts:
            part.outdate()

    def reload(self, updates: int, missed: Mapping[str, int] = MappingProxyType({})) -> None:
        for part in self._parts:
            part.reload(updates, missed)

    def keep(self, num_new: int = 0) -> None:
        for part in self._parts:
            part.keep(num_new)

    def lose(self) -> None:
        for part in self._parts:
            part.lose()

    def note_installed(self) -> None:
        for part in self._parts:
            part.note_installed()

    def adopt_replaced(self) -> None:
        for part in self._parts:
            part.adopt_replaced()


def _refusal(what: str, code: str) -> ApplianceCompilationError:
    return ApplianceCompilationError(
        what,
        code=code,
        where="the traced step",
        rule="MemoryX updates each parameter once per step, all by one rule",
        remedy=_REMEDY,
    )
