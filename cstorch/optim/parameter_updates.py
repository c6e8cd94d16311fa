"""Updates of parameters that were missed, and those of parameters that share their memory.

Torch counts only the updates of steps with a gradient.

Parameters that were one memory when their model was compiled are tied. A plain loop writes the
update of each to the memory, one after the other (``cstorch.remote.shared_storage``). Updates of
SGD are linear in the gradient and, without decay, read nothing else: so those of all are the one
with the sum of their gradients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from cstorch.remote.tensor import RemoteParameter
from memoryx.optim.rule import Rule
from waferstream.core.errors import ConfigError
from waferstream.core.optimizer import OptimizerSpec, ParamGroup


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


def with_one_update(
    rule: Rule,
    groups: Sequence[ParamGroup],
    parameters: Sequence[torch.Tensor],
    tied_before: Collection[str] = (),
) -> tuple[ParamGroup, ...]:
    """Return the groups of an optimizer with one update for each weight.

    Args:
        rule: The rule of the optimizer.
        groups: Its groups, in which a weight has as many places as parameters.
        parameters: Its parameters, in their order.
        tied_before: Weights that it has got as one parameter, since they were tied before.

    Raises:
        ConfigError: Updates of a weight do not add up to one.
    """
    remotes = {p._remote for p in parameters if isinstance(p, RemoteParameter)}
    tied = {
        remote.name: 1 if remote.name in tied_before else remote.num_tied
        for remote in remotes
        if remote.num_tied > 1
    }
    if not tied:
        return tuple(groups)
    count = Counter(name for group in groups for name in group.names)
    for name, num_tied in tied.items():
        own = [group for group in groups if name in group.names]
        is_linear = rule.name == "SGD" and not any(group.hyper["weight_decay"] for group in own)
        if len(own) > 1 or count[name] != num_tied or not is_linear:
            raise _refusal(rule, name, count[name], num_tied)
    return tuple(replace(group, names=tuple(dict.fromkeys(group.names))) for group in groups)


def tied_among(parameters: Iterable[torch.Tensor]) -> set[str]:
    """Return the weights among some parameters that are more than one parameter each."""
    remotes = (p._remote for p in parameters if isinstance(p, RemoteParameter))
    return {remote.name for remote in remotes if remote.num_tied > 1}


def refuse_clipped_ties(update: OptimizerSpec, groups: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to clip the sum of gradients that a plain loop clips one by one."""
    parameters = [p for group in groups for p in group["params"]]
    tied = sorted(tied_among(parameters))
    if tied and (update.clips_by_norm or update.max_gradient_value is not None):
        raise ConfigError(
            "gradients of parameters that share memory are clipped",
            code="shared-storage-clipped",
            where=", ".join(tied),
            rule="they are one weight, whose gradient is the sum",
            remedy="tie them as PyTorch does (b.weight = a.weight), or clone() one",
        )


def _refusal(rule: Rule, name: str, count: int, num_tied: int) -> ConfigError:
    return ConfigError(
        "parameters that share memory must have updates that add up to one",
        code="shared-storage-update",
        where=name,
        value=f"{count} of {num_tied} parameters in {rule.name}",
        rule="a plain loop writes the update of each to the memory; these are one update if SGD "
        "without weight decay has all of them in one group",
        remedy="tie them as PyTorch does (b.weight = a.weight), or clone() one",
    )
