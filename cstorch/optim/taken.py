"""An optimizer of torch that trains in MemoryX: its own groups and state, before and after a fit.

MemoryX applies the rule of the same name. Before a fit it takes what the optimizer has now: values
that the program or a schedule has set, and a state that was loaded or that plain steps have left.
Afterwards the optimizer has the state in torch's layout; a tensor is fetched when it is read.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Never
from weakref import WeakKeyDictionary

import torch
from torch import nn

from cstorch import optim
from cstorch.optim.loading import SCHEDULE_KEYS, load_state
from cstorch.optim.optimizer import Optimizer
from cstorch.optim.state import STEP
from cstorch.remote.tensor import RemoteTensor
from memoryx.optim.plain_rules import COEFFICIENTS, SMALLEST_NORM
from memoryx.optim.rule import RULES
from waferstream.compiler.capture.capture_errors import calling_line
from waferstream.core.errors import ConfigError, did_you_mean

log = logging.getLogger("waferstream")

_OTHER_RULES = frozenset({"Adafactor"})
"""Names under which torch has another rule than MemoryX, which has the vendor's."""

_IMPLEMENTATION = frozenset({"foreach", "fused", "capturable", "differentiable"})
"""Options of torch that choose among implementations of one rule."""

_IMPLIED: Mapping[tuple[str, str], object] = {
    ("AdamW", "decoupled_weight_decay"): True,
    ("Muon", "adjust_lr_fn"): "original",
    ("Muon", "eps"): SMALLEST_NORM,
    ("Muon", "ns_coefficients"): COEFFICIENTS,
}
"""Options whose value follows from the class here; all others without a counterpart must be off."""


class Taken:
    """What trains in the place of an optimizer of torch, and what that was given last.

    An optimizer of ``cstorch.optim`` takes its own place, and nothing is to be done.
    """

    def __init__(self, given: torch.optim.Optimizer) -> None:
        self.optimizer = from_torch(given)
        self._state: dict[torch.Tensor, dict[str, torch.Tensor]] = {}
        self._updates = 0  # before the fit
        self._late: set[torch.Tensor] = set()  # parameters without a state, while others have one

    def take(self, given: torch.optim.Optimizer) -> None:
        """Take the groups of torch's optimizer, and its state if it is another than it was given.

        Raises:
            ConfigError: MemoryX lacks an option that is on, parameters were added or removed, or
                the state is none that all of the optimizer's updates have left.
        """
        own = self.optimizer
        if own is given:
            return
        groups = list(groups_of(given))
        if list(map(_identities, groups)) != list(map(_identities, own.param_groups)):
            raise ConfigError(
                "an optimizer must keep its parameters between two calls of fit",
                code="torch-groups-changed",
                where=f"torch.optim.{type(given).__name__}",
                rule="MemoryX has the state of the parameters that it was made with",
                remedy="make a new optimizer, and a new Trainer",
            )
        for group, new in zip(own.param_groups, groups, strict=True):
            group.update(new)
        if self._is_changed(given):
            self._load(dict(_by_index(given)))
        own.remote_state.announce_loaded()
        self._updates = own.remote_state.updates

    def check(self, trained: Collection[torch.Tensor]) -> None:
        """Refuse to train parameters that have seen fewer updates than others, as far as it counts.

        Raises:
            ConfigError: One of ``trained`` has no state, and others have.
        """
        if self.optimizer.rule.counts_updates and not self._late.isdisjoint(trained):
            raise ConfigError(
                "all parameters that are trained must have seen as many updates",
                code="optimizer-steps-differ",
                where=f"torch.optim.{self.optimizer.rule.name}",
                value=f"{len(self._late & {*trained})} parameters without a state",
                rule="MemoryX counts the updates of all parameters together",
                remedy="make a new optimizer where further parameters begin to be trained",
            )

    def give(self, given: torch.optim.Optimizer, trained: Collection[torch.Tensor]) -> None:
        """Give torch's optimizer the state after the updates so far, in its own layout.

        Args:
            given: The optimizer.
            trained: The parameters that were updated: others have no state.
        """
        own, updates = self.optimizer, self.optimizer.remote_state.updates
        if own is given or updates == self._updates:
            return
        given._opt_called = True  # type: ignore[attr-defined]  # schedules may be stepped now
        for parameter in self._state:
            given.state.pop(parameter, None)
        held = own.state if updates else {}  # none is left where a cluster has failed
        self._state = {
            parameter: state
            for group in own.param_groups
            for parameter in group["params"]
            if parameter in trained and parameter in held
            if (state := {**self._numbers(group, parameter), **_tensors(held[parameter])})
        }
        given.state.update({parameter: dict(state) for parameter, state in self._state.items()})

    def like(self, model: nn.Module) -> Callable[[Iterable[nn.Parameter]], Optimizer]:
        """Return a function that makes this optimizer of the parameters of a copy of a model."""

        def make(parameters: Iterable[nn.Parameter]) -> Optimizer:
            copies = dict(zip(map(id, model.parameters()), parameters, strict=True))
            groups = [
                {**group, "params": [copies[id(each)] for each in group["params"]]}
                for group in self.optimizer.param_groups
            ]
            made: Optimizer = type(self.optimizer)(groups)
            return made

        return make

    def _load(self, saved: dict[int, dict[str, Any]]) -> None:
        """Load a state; parameters that it leaves out begin with their initial values."""
        state = self.optimizer.remote_state
        tensors = state.tensors()
        self._late.clear()
        for index, parameter in enumerate(_parameters(self.optimizer)):
            if saved and index not in saved:
                self._late.add(parameter)
                saved[index] = {
                    key: torch.full_like(tensor, state.initial_value(parameter, key))
                    for key, tensor in _tensors(tensors[parameter]).items()
                }
        load_state(self.optimizer.rule, state, list(_parameters(self.optimizer)), saved)

    def _numbers(self, group: dict[str, Any], parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the numbers that torch keeps for a parameter of a group."""
        rule, updates = self.optimizer.rule, self._seen(parameter)
        hyper = self.optimizer.hyper(group)
        numbers = {key: rule.derived_value(key, hyper, updates) for key in rule.derived_states}
        if rule.counts_updates:
            numbers = {STEP: updates, **numbers}
        return {key: torch.tensor(float(number)) for key, number in numbers.items()}

    def _is_changed(self, given: torch.optim.Optimizer) -> bool:
        """Return whether the optimizer has another state than it was given."""
        present = {parameter: state for parameter, state in given.state.items() if state}
        if present.keys() != self._state.keys():
            return True
        return any(
            state.keys() != own.keys()
            or any(state[key] is not own[key] for key in own)
            or int(state.get(STEP, seen)) != seen
            for parameter, own in self._state.items()
            for state, seen in ((present[parameter], self._seen(parameter)),)
        )

    def _seen(self, parameter: torch.Tensor) -> int:
        """Return the updates that a parameter has seen."""
        state = self.optimizer.remote_state
        return state.updates - state.missed.of(parameter, state.updates)


class _Held(defaultdict[Any, Any]):
    """A part of the state of torch's optimizer while MemoryX has the state."""

    def __missing__(self, key: object) -> _Held:
        return _Held()

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def _refuse(self, *_: object, **__: object) -> Never:
        raise _changed_in_fit()

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


@contextmanager
def held(given: torch.optim.Optimizer) -> Iterator[None]:
    """Refuse to set or remove entries of the state of torch's optimizer, which MemoryX has."""
    if isinstance(given, Optimizer):
        yield
        return
    given.state = _Held(None, {each: _Held(None, own) for each, own in given.state.items()})
    try:
        yield
        if not isinstance(given.state, _Held):  # load_state_dict has put another one in its place
            raise _changed_in_fit()
    finally:
        plain = {each: dict(state) for each, state in given.state.items()}
        given.state = defaultdict(dict, plain)


def _changed_in_fit() -> ConfigError:
    return ConfigError(
        "the state of an optimizer is loaded, or entries of it are set or removed, during a fit",
        code="state-changed-in-fit",
        where=calling_line(),
        rule="MemoryX has the state until the fit ends",
        remedy="change it between two calls of fit",
    )


_TAKEN: WeakKeyDictionary[torch.optim.Optimizer, Taken] = WeakKeyDictionary()


def taken(given: torch.optim.Optimizer, *, is_scheduled: bool = False) -> Taken:
    """Return the optimizer that trains in place of torch's: the same for every Trainer of it.

    Args:
        given: Torch's optimizer.
        is_scheduled: Whether the Trainer steps the schedules of its learning rates.

    Raises:
        ConfigError: MemoryX has no such optimizer, or lacks an option that is on.
    """
    is_left = any("initial_lr" in group for group in given.param_groups)  # by schedulers
    if is_left and not is_scheduled:
        log.warning(
            "A schedule of torch sets the learning rate: a fit keeps the rate with which it begins;"
            " step the schedule between two calls of fit"
        )
    if isinstance(given, Optimizer):
        return Taken(given)
    return _TAKEN.setdefault(given, Taken(given))


def _by_index(optimizer: torch.optim.Optimizer) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the state of the parameters that have one, by their number."""
    for index, parameter in enumerate(_parameters(optimizer)):
        if state := optimizer.state.get(parameter):
            yield index, {key: _read(value) for key, value in state.items()}


def _read(value: Any) -> Any:
    """Return a value; that of a remote tensor is fetched before it is overwritten."""
    return value._remote.read() if isinstance(value, RemoteTensor) else value


def _tensors(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the tensors of a state in the layout of ``cstorch.optim``."""
    return {key: tensor for key, tensor in state.items() if key != STEP}


def _identities(group: dict[str, Any]) -> list[int]:
    return list(map(id, group["params"]))


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def from_torch(optimizer: torch.optim.Optimizer) -> Optimizer:
    """Return the optimizer of the same name, with the groups and values of torch's.

    Its state stays behind (``cstorch.optim.taken``).

    Raises:
        ConfigError: MemoryX has no such optimizer, or lacks an option that is on.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer
    name = type(optimizer).__name__
    module = type(optimizer).__module__
    known = [n for n in RULES if hasattr(torch.optim, n) and n not in _OTHER_RULES]
    if module.split(".")[0] != "torch" or name not in known:
        raise ConfigError(
            f"MemoryX has no optimizer {module}.{name}",
            code="unknown-optimizer",
            where="cstorch.Trainer",
            value=name,
            rule=f"one of cstorch.optim, or of torch.optim: {', '.join(known)}",
            remedy=f"cstorch.optim.{name}, which has the rule and the defaults of the vendor"
            if name in RULES
            else did_you_mean(name, known),
        )
    made: Optimizer = getattr(optim, name)(list(groups_of(optimizer)))
    # The same objects: hooks may be registered and removed later.
    made._optimizer_step_pre_hooks = optimizer._optimizer_step_pre_hooks
    made._optimizer_step_post_hooks = optimizer._optimizer_step_post_hooks
    return made


def groups_of(optimizer: torch.optim.Optimizer) -> Iterator[dict[str, Any]]:
    """Yield the parameter groups of torch's optimizer with the values that the rule knows.

    Raises:
        ConfigError: MemoryX lacks an option that is on.
    """
    name = type(optimizer).__name__
    yield from (_group(name, group) for group in optimizer.param_groups)


def _group(name: str, group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parameter group with the hyper-parameters that the rule knows."""
    known = RULES[name].Arguments.model_fields
    taken: dict[str, Any] = {"params": group["params"]}
    if "eps_after_correction" in known:
        taken["eps_after_correction"] = True
    if group.get("dampening") and group["momentum"]:
        raise ConfigError(
            "a momentum of torch must have no dampening",
            code="torch-dampening",
            where=f"torch.optim.{name}",
            value=f"dampening={group['dampening']}",
            rule="torch leaves the first gradient undampened, MemoryX does not",
            remedy="cstorch.optim.SGD, if the first step may be dampened as well",
        )
    skipped = {"params", "param_names", *_IMPLEMENTATION, *SCHEDULE_KEYS}
    for key, value in group.items():
        if key in known:
            taken[key] = value.item() if isinstance(value, torch.Tensor) else value
        elif key not in skipped and value not in (None, _IMPLIED.get((name, key), False)):
            raise ConfigError(
                f"{name} of MemoryX has no option {key}",
                code="torch-option-missing",
                where=f"torch.optim.{name}",
                value=f"{key}={value}",
                rule=f"options: {', '.join(known)}",
                remedy="leave it out, or choose another optimizer",
            )
    return taken
