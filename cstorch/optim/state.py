"""The state of an optimizer (moments, momentum, ...): tensors whose values MemoryX holds.

``optimizer.state`` has remote tensors, which behave like the weights of a compiled model
(``cstorch.remote.tensor``): a read fetches the value, a change is sent before the next job. Before
an optimizer has been installed on the cluster, its values are those of the checkpoint that the
backend starts from, or the initial ones of its rule.

    new -> [loaded] -> installed with a traced step -> [taken back for another optimizer]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, cast
from weakref import WeakSet

import numpy as np
import torch

from cstorch.optim.parameter_updates import MissedUpdates
from cstorch.recording.recorded import RecordedOptimizer
from cstorch.remote.tensor import Holder, Remote, RemoteParameter, RemoteTensor, alias_of
from cstorch.sparse.masks import MaskView
from memoryx.optim.rule import Hyper, Rule
from waferstream.compiler.capture.capture_errors import calling_line
from waferstream.core.errors import ConfigError

STEP = "step"
"""The key of a parameter's number of updates in torch's layout."""


class SavedState(Protocol):
    """The optimizer state of a checkpoint."""

    @property
    def updates(self) -> int:
        """Updates that it has seen."""

    @property
    def missed(self) -> Mapping[str, int]:
        """Those of them that parameters have missed, by name."""

    @property
    def state_names(self) -> Collection[str]:
        """Names of its tensors, ``<parameter>.<key>``."""

    def state(self, name: str) -> np.ndarray:
        """Return one tensor; CheckpointError if the file is damaged."""


class StateHolder(Holder, Protocol):
    """The part of the backend that the state of an optimizer uses."""

    @property
    def seed(self) -> int:
        """The seed of the program's random numbers."""

    @property
    def saved_state(self) -> SavedState | None:
        """That of the checkpoint to start from, until an optimizer has been installed."""

    def note_loaded(self, updates: int) -> None:
        """Note that a program goes on with a state that has seen so many updates."""


class Owner(Protocol):
    """The optimizer that a state belongs to."""

    @property
    def rule(self) -> Rule:
        """Its rule in MemoryX."""

    @property
    def param_groups(self) -> Sequence[Mapping[str, Any]]:
        """Its parameter groups."""

    def hyper(self, group: Mapping[str, Any]) -> Hyper:
        """Return the hyper-parameters of a group, complete and checked."""


_LOADED_EARLY: WeakSet[OptimizerState] = WeakSet()
"""States that were loaded before the model of their parameters was compiled."""


def announce_early(holder: StateHolder) -> None:
    """Let training go on after states that were loaded before the holder's model was compiled."""
    for state in [state for state in _LOADED_EARLY if state.is_held_by(holder)]:
        _LOADED_EARLY.discard(state)
        state.announce_loaded()


class OptimizerState:
    """The remote tensors of one optimizer, and the number of updates that they have seen."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._remotes: dict[torch.Tensor, dict[str, Remote]] = {}
        self._tensors: dict[torch.Tensor, dict[str, Any]] = defaultdict(dict)
        self._counts: dict[torch.Tensor, float] = {}  # what a program finds under STEP
        self._updates = 0
        self.missed = MissedUpdates()
        self._earlier_updates = 0
        self._saved: SavedState | None = None  # the newest checkpoint that counts for it
        self.is_in_memoryx = False
        self._installed: frozenset[str] = frozenset()  # names of the tensors in MemoryX
        self.masks: MaskView | None = None
        """The masks of sparse weights."""
        self.num_loads = 0
        """How often values were loaded, so that a changed count of updates is noticed."""

    def tensors(self) -> dict[torch.Tensor, dict[str, Any]]:
        """Return the state of every parameter, as ``torch.optim.Optimizer.state`` has it."""
        self._check_counts()
        self._follow_checkpoint()
        for parameter, hyper in self._parameters():
            remotes = self._remotes.setdefault(parameter, {})
            state = self._tensors[parameter]
            for key, shape in self._shapes(parameter, hyper).items():
                if key not in remotes:
                    origin = _Origin(self, parameter)
                    remotes[key] = Remote(key, torch.empty(shape), origin, is_fresh=False)
                    state.setdefault(key, alias_of(remotes[key]))
            seen = self._updates - self.missed.of(parameter, self._updates)
            state.setdefault(STEP, torch.tensor(0.0)).fill_(seen)
            self._counts[parameter] = float(seen)
        return self._tensors

    def _check_counts(self) -> None:
        """Raise ConfigError if the program has written to the updates that a parameter has seen."""
        for parameter, seen in self._counts.items():
            if (found := self._tensors[parameter].get(STEP)) is None or float(found) != seen:
                raise ConfigError(
                    "the count of updates in an optimizer's state was changed",
                    code="state-step-changed",
                    where=calling_line(),
                    value=f"{found} instead of {seen:g}",
                    rule="MemoryX counts the updates of all parameters together",
                    remedy="load a state with that count (optimizer.load_state_dict), or make a "
                    "new optimizer, which counts from 0",
                )

    def put(self, tensors: Mapping[torch.Tensor, dict[str, Any]]) -> None:
        """Take other tensors in place of the present ones; their values are sent later."""
        self._tensors = defaultdict(dict, tensors)
        self._counts.clear()

    @property
    def updates(self) -> int:
        """Updates that the state has seen."""
        self._follow_checkpoint()
        return self._updates

    def set_updates(self, updates: int, missed: Mapping[str, int] = MappingProxyType({})) -> None:
        """Note that the state has values that were loaded, after so many updates.

        ``missed`` are those that a parameter has missed, by its name.
        """
        self._updates = updates
        named = ((parameter, str(_name(parameter))) for parameter, _ in self._parameters())
        self.missed.reload({p: missed[name] for p, name in named if name in missed})
        self.num_loads += 1

    def note_trained(self, names: Collection[str]) -> None:
        """Note which parameters have gradients from the next step on."""
        parameters = [parameter for parameter, _ in self._parameters()]
        trained = {parameter for parameter in parameters if _name(parameter) in names}
        self.missed.note_trained(parameters, trained, self.updates)

    def missed_updates(self) -> dict[str, int]:
        """Return the updates that parameters have missed, by name, of those that have."""
        found = {
            str(_name(parameter)): self.missed.of(parameter, self._updates)
            for parameter, _ in self._parameters()
        }
        return {name: missed for name, missed in found.items() if missed}

    def announce_loaded(self) -> None:
        """Let training go on after the updates of a state that was loaded.

        Before the model is compiled there is no backend to tell: ``announce_early`` does it.
        """
        if (holder := self._holder()) is not None:
            holder.note_loaded(self._updates)
        else:
            _LOADED_EARLY.add(self)

    def is_held_by(self, holder: StateHolder) -> bool:
        """Return whether the parameters are those of the holder's model."""
        return self._holder() is holder

    def earlier_updates(self, done: int) -> int:
        """Return the number of updates before step 1 of a training that has done ``done`` steps."""
        self._earlier_updates = self.updates - done
        return self._earlier_updates

    def note_done(self, steps: int) -> None:
        """Note how many steps of training have been applied since step 1."""
        self._updates = steps + self._earlier_updates

    @property
    def seed(self) -> int:
        """The seed of the program; 0 before the model is compiled."""
        holder = self._holder()
        return 0 if holder is None else holder.seed

    def settle(self) -> None:
        """Run the steps that the user has called and that have not run yet."""
        if (holder := self._holder()) is not None:
            holder.settle()

    def names(self, group: Mapping[str, Any]) -> list[str] | None:
        """Return the names of a group's parameters; None before the model is compiled."""
        names = [_name(parameter) for parameter in group["params"]]
        return None if None in names else cast(list[str], names)

    def value(self, parameter: torch.Tensor, key: str) -> np.ndarray:
        """Return the current value of one tensor."""
        self._follow_checkpoint()
        holder, name = self._holder(), f"{_name(parameter)}.{key}"
        if name in self._installed and holder is not None:
            return holder.fetch(name, "optimizer")
        if self._saved is not None and name in self._saved.state_names:
            return self._saved.state(name)
        initial = self.initial_value(parameter, key)
        return np.full(self._remotes[parameter][key].shape, initial, np.float32)

    def initial_value(self, parameter: torch.Tensor, key: str) -> float:
        """Return the value of every element of a tensor before the first update."""
        hyper = next(hyper for other, hyper in self._parameters() if other is parameter)
        return self._owner.rule.initial_value(key, hyper)

    def holds(self, state: Mapping[Any, Mapping[str, Any]]) -> bool:
        """Return whether all tensors of a state in torch's layout are those of this optimizer."""
        own = {remote for remotes in self._remotes.values() for remote in remotes.values()}
        return all(
            isinstance(tensor, RemoteTensor) and tensor._remote in own
            for tensors in state.values()
            for key, tensor in tensors.items()
            if key != STEP
        )

    def description(self) -> dict[str, Any]:
        """Return the state's entries of a checkpoint besides its tensors, of JSON types."""
        groups, start = [], 0
        for group in self._owner.param_groups:
            stop = start + len(group["params"])
            places = {"params": list(range(start, stop)), "param_names": self.names(group)}
            groups.append({**self._owner.hyper(group), **places})
            start = stop
        missed = self.missed_updates()
        counts = {"updates": self.updates, **({"missed": missed} if missed else {})}
        return {**counts, "param_groups": groups}

    def take_changes(self) -> dict[str, torch.Tensor]:
        """Return the values that were written in this process since the last call, by name."""
        changes = {}
        for parameter, remotes in self._remotes.items():
            for key, remote in remotes.items():
                if remote.take_change():
                    changes[f"{_name(parameter)}.{key}"] = remote.plain
        return changes

    def take_masks(self) -> dict[str, torch.Tensor]:
        """Return the masks that the program has given since the last call, as words by name."""
        return {} if self.masks is None else self.masks.take()

    def outdate(self) -> None:
        """Note that MemoryX holds other values from now on."""
        for remote in self._all():
            remote.outdate()

    def reload(self, updates: int, missed: Mapping[str, int] = MappingProxyType({})) -> None:
        """Note that MemoryX has read other values from a checkpoint."""
        self.outdate()
        self.set_updates(updates, missed)

    def keep(self, num_new: int = 0) -> None:
        """Bring all values to this process, from where they are sent when they are needed again.

        ``num_new`` are the updates that they have seen since the last ``note_done``.
        """
        self._updates += num_new
        self.tensors()
        for remote in self._all():
            remote.fetch()
            remote.note_change()
        self.is_in_memoryx, self._installed = False, frozenset()

    def lose(self) -> None:
        """Begin anew, since MemoryX has ended with the values."""
        self.is_in_memoryx, self._installed, self._saved = False, frozenset(), None
        self.reload(0)

    def note_installed(self) -> None:
        """Note that MemoryX holds all tensors of this optimizer from now on."""
        self.tensors()
        self.is_in_memoryx = True
        if self.masks is not None:
            self.masks.is_in_memoryx = True
        self._installed = frozenset(
            f"{_name(parameter)}.{key}"
            for parameter, remotes in self._remotes.items()
            for key in remotes
        )

    def adopt_replaced(self) -> None:
        """Take the values of tensors that the user has put in place of the remote ones.

        Raises:
            ConfigError: A tensor was removed, or the count of updates changed.
        """
        for parameter, remotes in self._remotes.items():
            own = self._tensors[parameter]
            for key, remote in remotes.items():
                given = own.get(key)
                if given is None:
                    raise ConfigError(
                        "a tensor of an optimizer's state was removed",
                        code="state-removed",
                        where=calling_line(),
                        value=key,
                        rule="MemoryX holds the state of every parameter until the program ends",
                        remedy="make a new optimizer, or set the tensor to zero in place",
                    )
                if getattr(given, "_remote", None) is not remote:
                    own[key] = alias_of(remote)
                    if isinstance(given, torch.Tensor):
                        own[key].copy_(given)
        self._check_counts()

    def _follow_checkpoint(self) -> None:
        """Start from the checkpoint that the backend starts from, if one was named since."""
        holder = self._holder()
        saved = None if holder is None or self.is_in_memoryx else holder.saved_state
        if saved is not None and saved is not self._saved:
            self._saved = saved
            self.reload(saved.updates, saved.missed)

    def _holder(self) -> StateHolder | None:
        for group in self._owner.param_groups:
            for parameter in group["params"]:
                if isinstance(parameter, RemoteParameter):
                    return cast(StateHolder, parameter._remote.holder)
        return None

    def _parameters(self) -> Iterator[tuple[torch.Tensor, Hyper]]:
        """Yield every parameter with the hyper-parameters of its group."""
        for group in self._owner.param_groups:
            hyper = self._owner.hyper(group)
            for parameter in group["params"]:
                yield parameter, hyper

    def _shapes(self, parameter: torch.Tensor, hyper: Hyper) -> dict[str, tuple[int, ...]]:
        return self._owner.rule.state_shapes(tuple(parameter.shape), hyper)

    def _all(self) -> Iterator[Remote]:
        for remotes in self._remotes.values():
            yield from remotes.values()


@dataclass(frozen=True)
class _Origin:
    """Where one remote tensor gets its value from."""

    has_ended = False

    state: OptimizerState
    parameter: torch.Tensor

    def settle(self) -> None:
        self.state.settle()

    def fetch(self, name: str, state: str = "optimizer") -> np.ndarray:  # noqa: ARG002
        return self.state.value(self.parameter, name)


def _name(parameter: torch.Tensor) -> str | None:
    """Return the name of a parameter in the compiled model, None if it is not in one."""
    return parameter._remote.name if isinstance(parameter, RemoteParameter) else None


def state_of(optimizer: RecordedOptimizer | None) -> OptimizerState | None:
    """Return the state of a recorded optimizer, None for none."""
    if optimizer is None:
        return None
    state = optimizer.remote_state
    assert isinstance(state, OptimizerState), "optimizers of cstorch.optim are recorded alone"
    return state
