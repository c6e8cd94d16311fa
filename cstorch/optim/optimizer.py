"""Optimizers as a user constructs them: groups on the host, the update itself in MemoryX."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, unwrap
from typing import Any, ClassVar

import torch
from torch.optim.optimizer import (
    ParamsT,
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
)
from torch.utils.hooks import RemovableHandle

from cstorch.hooks import registered
from cstorch.optim.group_spec import group_spec, sparse_weights
from cstorch.optim.joined import JoinedOptimizers
from cstorch.optim.loading import SCHEDULE_KEYS, load_state, loaded_hyper
from cstorch.optim.parameter_updates import tied_among, with_one_update
from cstorch.optim.signatures import parameters_of, with_signature
from cstorch.optim.state import STEP, OptimizerState
from cstorch.recording.recorded import RecordedOptimizer, RecordedScheduler
from cstorch.recording.recorder import Recorder, active_recorder
from cstorch.sparse.algorithm import SparsityAlgorithm, refuse_unapplied
from cstorch.sparse.selective_grad import refuse_other_changes
from memoryx.optim.rule import Rule
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.core.optimizer import OptimizerSpec, ParamGroup

Hook = Callable[["Optimizer", tuple[Any, ...], dict[str, Any]], None]

_BOOKKEEPING = SCHEDULE_KEYS.union(
    {"params", "param_names", "name", "tags", "adjust_learning_rate", "adjust_val"}
)
"""Keys of a parameter group that are no hyper-parameters; schedulers read those after ``name``."""


_add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
"""torch's method without its guard against compilation, which imports Dynamo (2 s)."""


class Optimizer(torch.optim.Optimizer):
    """Parameter groups with hyper-parameters; ``step()`` is recorded, and done by MemoryX.

    Every rule of ``memoryx.optim`` has a subclass, made by ``class_of``. The rule's
    ``Arguments`` are those of its constructor, with their ranges, for the defaults and for every
    parameter group.
    """

    rule: ClassVar[Rule]
    __signature__: ClassVar[Signature]

    def __init__(self, params: ParamsT, *arguments: Any, **named: Any) -> None:
        given = self.__signature__.bind(params, *arguments, **named)
        given.apply_defaults()
        del given.arguments["params"]
        self.remote_state = OptimizerState(self)
        self._tied_before: set[str] = set()
        self.sparsity: SparsityAlgorithm | None = None
        """The algorithm that was applied to this optimizer."""
        self._zero_grad_pre_hooks: OrderedDict[int, Hook] = OrderedDict()
        self._zero_grad_post_hooks: OrderedDict[int, Hook] = OrderedDict()
        super().__init__(params, given.arguments)

    @property  # type: ignore[override]
    def state(self) -> dict[torch.Tensor, dict[str, Any]]:
        """The state of every parameter, held by MemoryX: each tensor is fetched when it is read."""
        self.remote_state.settle()
        return self.remote_state.tensors()

    @state.setter
    def state(self, tensors: Mapping[torch.Tensor, dict[str, Any]]) -> None:
        self.remote_state.put(tensors)

    def state_dict(self) -> dict[str, Any]:
        """Return state and groups in torch's layout; the tensors are fetched when they are read.

        A group has the names of its parameters, too, once its model is compiled.
        """
        made = super().state_dict()
        for tensors in made["state"].values():
            tensors[STEP] = tensors[STEP].clone()
        for group, own in zip(made["param_groups"], self.param_groups, strict=True):
            if names := self.remote_state.names(own):
                group["param_names"] = names
        return made

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take state and hyper-parameters of a dict in torch's layout, from the next step on.

        It may come from this class, from torch's optimizer of the same name, or from a checkpoint.

        Raises:
            ConfigError: It does not fit this optimizer.
        """
        for pre_hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = pre_hook(self, state_dict) or state_dict
        self.remote_state.settle()
        hyper = loaded_hyper(self.rule, self.param_groups, state_dict["param_groups"])
        before = [dict(group) for group in self.param_groups]
        try:
            for index, (group, loaded) in enumerate(zip(self.param_groups, hyper, strict=True)):
                group.update(self._checked({**group, **loaded}, f"parameter group {index}"))
            parameters = [p for group in self.param_groups for p in group["params"]]
            load_state(self.rule, self.remote_state, parameters, state_dict["state"])
        except ConfigError:
            for group, kept in zip(self.param_groups, before, strict=True):
                group.update(kept)
            raise
        self.remote_state.announce_loaded()
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group after checking its hyper-parameters; ConfigError names a wrong one."""
        hyper = self._checked(param_group, f"parameter group {len(self.param_groups)}")
        _add_param_group(self, {**param_group, **hyper})
        self._tied_before |= tied_among(self.param_groups[-1]["params"])

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Record the update; only inside a ``cstorch.trace`` function."""
        if closure is not None:
            raise WaferStreamError(
                "step() takes no closure",
                code="step-with-closure",
                rule="one forward and backward pass per step",
            )
        recorder = active_recorder.get()
        if recorder is None:
            raise WaferStreamError(
                "the optimizer runs in MemoryX",
                code="optimizer-outside-trace",
                where=f"{type(self).__name__}.step()",
                remedy="call step() inside a cstorch.trace function",
            )
        self._call_hooks(recorder, _global_optimizer_pre_hooks, self._optimizer_step_pre_hooks)
        recorder.step_optimizer(self)
        self._call_hooks(recorder, _global_optimizer_post_hooks, self._optimizer_step_post_hooks)

    def hooks(self) -> tuple[Any, ...]:
        """Return the hooks of its steps."""
        before, after = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks
        return (*before.values(), *after.values())

    def _call_hooks(self, recorder: Recorder, *hooks: Mapping[int, Callable[..., Any]]) -> None:
        """Call hooks of a step, which find the weights and gradients of the trace in the groups."""
        called = [hook for some in hooks for hook in some.values()]
        if called:
            with recorder.leaves_in(self.param_groups):
                for hook in called:
                    hook(self, (), {})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear gradients; in a trace, those that the update of the step would take."""
        for hook in self._zero_grad_pre_hooks.values():
            hook(self, (set_to_none,), {})
        recorder = active_recorder.get()
        if recorder is None:
            super().zero_grad(set_to_none)
        elif recorder.leaves is not None:
            recorder.leaves.clear(p for group in self.param_groups for p in group["params"])
        for hook in self._zero_grad_post_hooks.values():
            hook(self, (set_to_none,), {})

    def register_zero_grad_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before ``zero_grad``; in a trace, once."""
        return registered(self._zero_grad_pre_hooks, hook)

    def register_zero_grad_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after ``zero_grad``; in a trace, once."""
        return registered(self._zero_grad_post_hooks, hook)

    def preinitialize(self) -> None:
        """Do nothing: MemoryX allocates the state of every parameter before the first step.

        Programs written for the vendor's optimizers may call it.
        """

    def visit_state(self, function: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
        """Call a function on every tensor of the state; what it returns takes the place."""
        for tensors in self.state.values():
            for key, tensor in tensors.items():
                if (value := function(tensor)) is not None:
                    tensors[key] = value

    def apply(self, sparsity: SparsityAlgorithm) -> None:
        """Let the weights that an algorithm was applied to stay sparse in further updates.

        Raises:
            ConfigError: It is no algorithm, was applied to no model, or is a second one.
        """
        if not isinstance(sparsity, SparsityAlgorithm) or self.sparsity not in (None, sparsity):
            raise ConfigError(
                "an optimizer must get one algorithm of cstorch.sparse",
                code="not-a-sparsity-algorithm",
                where=f"{type(self).__name__}.apply",
                value=type(sparsity).__name__,
                remedy="join several algorithms in a cstorch.sparse.Group",
            )
        for parameter, (name, algorithm) in sparsity.assigned().items():
            if (words := algorithm.first_mask(name, parameter)) is not None:
                sparsity.view.put(parameter, words, is_first=True)
        self.sparsity = sparsity
        self.remote_state.masks = sparsity.view

    def joined_with(self, other: RecordedOptimizer) -> RecordedOptimizer:
        """Return this optimizer and another one of the same step, as one."""
        return JoinedOptimizers((self, other))

    def report_sparsity(self, updates: int) -> None:
        """Call the hooks of the sparsity after so many steps of training."""
        if self.sparsity is not None:
            self.sparsity.report(updates)

    def increment_global_step(self, parameter: torch.Tensor) -> torch.Tensor:
        """Refuse to count updates here: MemoryX counts them.

        Raises:
            WaferStreamError: Always.
        """
        raise WaferStreamError(
            "the number of updates is counted by MemoryX",
            code="step-counted-in-memoryx",
            where=f"{type(self).__name__}.increment_global_step",
            value=f"a parameter of shape {tuple(parameter.shape)}",
            rule="the update of an optimizer is a rule of memoryx.optim",
            remedy="add a rule, or read optimizer.state[parameter]['step']",
        )

    def spec(
        self,
        names: Mapping[torch.Tensor, str],
        schedulers: Sequence[RecordedScheduler] = (),
        done: int = 0,
        num_steps: int = 1,
    ) -> OptimizerSpec:
        """Return the update as data, complete with every hyper-parameter.

        ``names`` maps each parameter to its name in the model; ``done`` is the number of steps of
        training that are done, ``num_steps`` the last one that the update has to cover.
        WaferStreamError for a parameter without a name, ConfigError for a group without a learning
        rate, or for weights that are sparse in the model only.
        """
        groups: list[ParamGroup] = []
        schedulers = self._own(schedulers)
        for index, group in enumerate(self.param_groups):
            where = f"parameter group {index}"
            hyper = self._checked(group, where)
            groups.append(group_spec(self.rule, group, hyper, names, schedulers, where))
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        refuse_unapplied(self.sparsity, parameters)
        refuse_other_changes(self.rule.name, self.param_groups, groups)
        earlier = self.remote_state.earlier_updates(done)
        num_updates = num_steps + max(0, earlier)
        sparsity = sparse_weights(self.sparsity, names, num_updates, self.remote_state.seed)
        return OptimizerSpec(
            rule=self.rule.name,
            groups=with_one_update(self.rule, groups, parameters, self._tied_before),
            earlier_updates=earlier,
            missed=self.remote_state.missed_updates(),
            sparsity=tuple(sparsity),
        )

    def settings(self, schedulers: Sequence[RecordedScheduler]) -> list[object]:
        """Return all that decides further updates and that no scheduler sets.

        Two calls return equal lists if the user has changed nothing in between.
        """
        settings: list[object] = [self.remote_state.num_loads, self.sparsity is not None]
        schedulers = self._own(schedulers)
        for group in self.param_groups:
            scheduled = {scheduler.key for scheduler in schedulers if scheduler.sets(group)}
            own = {key: value for key, value in group.items() if key not in scheduled}
            settings.append({**own, "params": len(own["params"])})
        return copy.deepcopy(settings)

    def _own(self, schedulers: Sequence[RecordedScheduler]) -> list[RecordedScheduler]:
        """Return the schedulers of this optimizer among those of a step."""
        return [scheduler for scheduler in schedulers if scheduler.optimizer is self]

    def hyper(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """Return the hyper-parameters of a group, complete and checked."""
        return self._checked(group, "a parameter group")

    def _checked(self, group: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Return all hyper-parameters of a group, with defaults, after checking them."""
        own = {key: value for key, value in group.items() if key not in _BOOKKEEPING}
        where = f"{type(self).__name__}, {where}"
        hyper = dict(validate(self.rule.Arguments, {**self.defaults, **own}, where))
        self.rule.check(hyper, where)
        return hyper

    def _patch_step_function(self) -> None:
        # torch wraps step() in a profiler range, which a trace would capture as an op.
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"


def class_of(rule: Rule, module: str) -> type[Optimizer]:
    """Return the subclass of Optimizer for a rule of MemoryX."""
    names = {name: name for name in rule.Arguments.model_fields}
    params = Parameter("params", Parameter.POSITIONAL_OR_KEYWORD, annotation=ParamsT)
    parameters = [params, *parameters_of(rule.Arguments, names)]
    attributes = {
        "__doc__": type(rule).__doc__,
        "__init__": with_signature(Optimizer.__init__, parameters),
        "__module__": module,
        "__signature__": Signature(parameters),
        "rule": rule,
    }
    return type(rule.name, (Optimizer,), attributes)
