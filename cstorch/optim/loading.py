"""Optimizer state in torch's layout of a state dict: loaded from one, or from a checkpoint file.

{"state": {0: {"step": 7, "exp_avg": ...}, ...}, "param_groups": [{"lr": ..., "params": [0]}]}

A file has the tensors by the names of their parameters, and hyper-parameters and the number of
updates as one object; torch counts the parameters through all groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cstorch.optim.state import STEP, OptimizerState
from cstorch.remote.tensor import Remote, alias_of
from memoryx.optim.rule import Rule
from waferstream.checkpoint import OPTIMIZER_STATE
from waferstream.checkpoint.reader import Reader
from waferstream.core.errors import ConfigError

SCHEDULE_KEYS = frozenset(
    {"initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "swa_lr"}
)
"""Keys of a parameter group that schedulers of torch leave there for themselves."""

_IGNORED_NAMES = "params param_names name tags adjust_learning_rate adjust_val"
_IGNORED_MODES = "foreach capturable differentiable fused decoupled_weight_decay"
IGNORED = SCHEDULE_KEYS.union(f"{_IGNORED_NAMES} {_IGNORED_MODES}".split())
"""Keys of a saved group that change no update, or that say which parameters it has."""


def loaded_hyper(
    rule: Rule, groups: Sequence[Mapping[str, Any]], saved: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the hyper-parameters of each saved group that the rule has.

    Raises:
        ConfigError: Groups or their sizes differ, or the rule lacks an option that is switched on.
    """
    sizes, saved_sizes = ([len(group["params"]) for group in some] for some in (groups, saved))
    if sizes != saved_sizes:
        raise ConfigError(
            "the saved optimizer must have as many groups and parameters as this one",
            code="optimizer-groups-mismatch",
            where=f"{rule.name}.load_state_dict",
            value=f"groups of {saved_sizes} parameters",
            rule=f"groups of {sizes}",
        )
    own = rule.Arguments.model_fields
    for group in saved:
        for key in group.keys() - own.keys() - IGNORED:
            if group[key]:
                raise ConfigError(
                    "the saved optimizer has an option that this one lacks",
                    code="optimizer-option-unknown",
                    where=f"{rule.name}.load_state_dict",
                    value=f"{key}={group[key]}",
                    rule=f"options: {', '.join(own)}",
                )
    return [{key: _plain(group[key]) for key in group.keys() & own.keys()} for group in saved]


def load_state(
    rule: Rule,
    state: OptimizerState,
    parameters: Sequence[torch.Tensor],
    saved: Mapping[int, Mapping[str, Any]],
) -> None:
    """Overwrite all tensors of an optimizer's state, and its number of updates.

    A parameter that is not trained may be missing.

    Raises:
        ConfigError: Tensors are missing, unknown or of another shape, or numbers of updates differ.
    """
    own = state.tensors()
    steps = set()
    for index, parameter in enumerate(parameters):
        values = {key: v for key, v in saved.get(index, {}).items() if v is not None}
        if STEP in values:
            steps.add(int(values.pop(STEP)))
        targets = {key: own[parameter][key] for key in own[parameter] if key != STEP}
        if values or (saved and parameter.requires_grad):
            _check(rule, index, values, targets)
    if len(steps) > 1:
        raise ConfigError(
            "all parameters must have seen as many updates",
            code="optimizer-steps-differ",
            where=f"{rule.name}.load_state_dict",
            value=", ".join(map(str, sorted(steps))),
            rule="MemoryX updates every parameter in every step",
        )
    for index, parameter in enumerate(parameters):
        for key, tensor in own[parameter].items():
            if key != STEP:
                loaded = saved.get(index, {})
                if key in loaded:
                    tensor.copy_(loaded[key])
                else:
                    tensor.fill_(state.initial_value(parameter, key))
    state.set_updates(steps.pop() if steps else int(bool(saved)))


def _check(
    rule: Rule, index: int, values: Mapping[str, Any], targets: Mapping[str, torch.Tensor]
) -> None:
    wrong = list(_differences(rule, values, targets))
    if wrong:
        raise ConfigError(
            "a saved state must have the tensors of this optimizer",
            code="optimizer-state-mismatch",
            where=f"{rule.name}.load_state_dict, parameter {index}",
            value="; ".join(wrong),
            rule=", ".join(targets) or "no tensors",
            remedy="load the state of an optimizer of the same class with the same options",
        )


def _differences(
    rule: Rule, values: Mapping[str, Any], targets: Mapping[str, torch.Tensor]
) -> Iterator[str]:
    for key in targets.keys() - values.keys():
        yield f"{key} is missing"
    for key in values.keys() - targets.keys() - set(rule.derived_states):
        yield f"{key} is unknown"
    for key in values.keys() & targets.keys():
        if tuple(values[key].shape) != tuple(targets[key].shape):
            yield f"{key} has shape {tuple(values[key].shape)}, not {tuple(targets[key].shape)}"


def _plain(value: Any) -> Any:
    """Return a number for a tensor of one element, as torch has a learning rate sometimes."""
    return value.item() if isinstance(value, torch.Tensor) else value


def torch_layout(reader: Reader) -> dict[str, Any]:
    """Return the optimizer state of a checkpoint in torch's layout; a tensor is read on access.

    Files of earlier versions say nothing of groups: they have one, in alphabetical order.
    """
    tensors = _by_parameter(reader)
    saved = reader.objects.get("optimizer", {"updates": reader.objects.get("global_step", 0)})
    names = sorted(tensors)
    groups = saved.get("param_groups", [{"params": [*range(len(names))], "param_names": names}])
    states: dict[int, dict[str, torch.Tensor]] = {}
    for group in groups:
        for index, name in zip(group["params"], group["param_names"], strict=True):
            if name in tensors or saved["updates"]:
                seen = saved["updates"] - saved.get("missed", {}).get(name, 0)
                step = torch.tensor(float(seen))
                states[index] = {STEP: step, **tensors.get(name, {})}
    return {"state": states, "param_groups": groups}


def file_layout(state_dict: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors of a state dict by their names in a file, and the object beside them.

    Parameters without names have their numbers instead.
    """
    groups = [{**group} for group in state_dict["param_groups"]]
    names: dict[int, str] = {}
    for group in groups:
        group.setdefault("param_names", list(map(str, group["params"])))
        names |= zip(group["params"], group["param_names"], strict=True)
    tensors = {
        f"{names[index]}.{key}": tensor
        for index, state in state_dict["state"].items()
        for key, tensor in state.items()
        if isinstance(tensor, torch.Tensor) and key != STEP
    }
    updates = [int(state[STEP]) for state in state_dict["state"].values() if STEP in state]
    return tensors, {"updates": max(updates, default=0), "param_groups": groups}


def _by_parameter(reader: Reader) -> dict[str, dict[str, torch.Tensor]]:
    """Return lazy tensors by the name of their parameter, then by their key."""
    found: dict[str, dict[str, torch.Tensor]] = defaultdict(dict)
    for name in reader.names(OPTIMIZER_STATE):
        parameter, _, key = name.rpartition(".")
        shape = reader.tensors[f"{OPTIMIZER_STATE}.{name}"].shape
        remote = Remote(name, torch.empty(shape), _File(reader), is_fresh=False)
        found[parameter][key] = alias_of(remote)
    return dict(found)


@dataclass(frozen=True)
class _File:
    """A checkpoint as the holder of its tensors."""

    reader: Reader
    has_ended = False

    def settle(self) -> None:
        """Do nothing: no step changes a file."""

    def fetch(self, name: str, state: str = OPTIMIZER_STATE) -> np.ndarray:  # noqa: ARG002
        return self.reader[f"{OPTIMIZER_STATE}.{name}"]
