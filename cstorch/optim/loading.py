"""Read a state dict in torch's layout into an optimizer: its own, torch's, or a checkpoint's.

{"state": {0: {"step": 7, "exp_avg": ...}, ...}, "param_groups": [{"lr": ..., "params": [0]}]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from cstorch.optim.state import STEP, OptimizerState
from memoryx.optim.rule import Rule
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
