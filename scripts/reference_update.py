"""The update that ends a step of the reference loop: loss scale, clipping, schedules, optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from cstorch.sparse.configuration import build as build_sparsity
from memoryx.sparsity.patterns import first_mask, next_mask
from waferstream.config.params import InitConfig
from waferstream.core.sparsity.spec import WeightSparsity
from waferstream.training.setup.model import make_scaler
from waferstream.training.setup.parameter_groups import parameter_groups
from waferstream.workload.published_names import published_name

FUSED = ("SGD", "Adam", "AdamW")
"""Optimizers that are fused kernels in torch, which the cluster matches bit for bit."""

UNFUSED = ("Adadelta", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")
"""Optimizers that torch applies to one tensor after the other, matched bit for bit as well."""


def make_optimizer(init: InitConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Build the optimizer of the fp32 masters; weight decay is for matrices only."""
    if init.optimizer is None:
        raise SystemExit("params.yaml names no optimizer: there is nothing to train")
    name, arguments = init.optimizer.class_name, init.optimizer.arguments()
    if not arguments.pop("correct_bias", True):
        raise SystemExit("torch's AdamW always corrects its bias")
    arguments.pop("eps_after_correction", None)  # see place_eps
    if arguments["lr"] is None:
        arguments["lr"] = next(s.schedule.at(0) for s in init.schedulers if s.key == "lr")
    groups = [
        {**group, "tags": {*group.pop("tags")}, "factor": group.pop("adjust_learning_rate", 1.0)}
        for group in parameter_groups(init, model)
    ]
    if name == "Lion":
        return Lion(groups, arguments)
    if name not in FUSED + UNFUSED:
        known = ", ".join((*FUSED, *UNFUSED, "Lion"))
        raise SystemExit(f"torch has no {name} to compare with: choose {known}")
    variant = {"fused": True} if name in FUSED else {"foreach": False}
    optimizer: torch.optim.Optimizer = getattr(torch.optim, name)(groups, **arguments, **variant)
    return optimizer


class Lion(torch.optim.Optimizer):
    """Lion (Chen et al. 2023, arXiv:2302.06675, algorithm 2), which torch does not have."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        for group in self.param_groups:
            lr, decay, (beta1, beta2) = group["lr"], group["weight_decay"], group["betas"]
            for p in group["params"]:
                momentum = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                direction = momentum.lerp(p.grad, 1 - beta1).sign()
                p.mul_(1 - lr * decay).add_(direction, alpha=-lr)
                momentum.lerp_(p.grad, 1 - beta2)


def follow_schedules(init: InitConfig, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Set the hyper-parameters of a step, counted from 0, as configured."""
    for scheduler in init.schedulers:
        for group in optimizer.param_groups:
            tags = scheduler.param_group_tags
            if tags is None or not group["tags"].isdisjoint(tags):
                factor = group["factor"] if scheduler.key == "lr" else 1.0
                group[scheduler.key] = factor * scheduler.schedule.at(step)


def place_eps(init: InitConfig, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Let torch's Adam add ``eps`` to the root of the uncorrected second moment, as MemoryX does.

    Args:
        init: The configuration, with ``eps`` as written there.
        optimizer: The optimizer, which adds its ``eps`` after the correction.
        step: The update that comes next, counted from 1.
    """
    assert init.optimizer is not None
    arguments = init.optimizer.arguments()
    if arguments.get("eps_after_correction") is False:
        for group in optimizer.param_groups:
            group["eps"] = arguments["eps"] / math.sqrt(1.0 - arguments["betas"][1] ** step)


def clip(init: InitConfig, masters: Iterable[nn.Parameter]) -> None:
    """Clip gradients by value, then by global norm, as configured."""
    if init.precision.max_gradient_value is not None:
        nn.utils.clip_grad_value_(masters, init.precision.max_gradient_value)
    if init.precision.max_gradient_norm is not None:
        nn.utils.clip_grad_norm_(masters, init.precision.max_gradient_norm)


class SparseWeights:
    """The masks of ``init.sparsity``, applied to weights, gradients and states as they are."""

    def __init__(
        self, init: InitConfig, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        self._optimizer = optimizer
        self._specs: dict[nn.Parameter, WeightSparsity] = {}
        self._dense: dict[nn.Parameter, torch.Tensor] = {}  # whole gradients
        if init.sparsity:
            sparsity = build_sparsity(init.sparsity, published_name)
            model.apply(sparsity)
            for master, (name, algorithm) in sparsity.assigned().items():
                assert isinstance(master, nn.Parameter)
                self._specs[master] = algorithm.spec(name, master, 0, init.seed)
        with torch.no_grad():
            self._masks = {m: first_mask(spec, m.detach()) for m, spec in self._specs.items()}
            for master, mask in self._masks.items():
                master[~mask] = 0.0

    def mask_gradients(self) -> None:
        """Set the gradients of masked weights to zero."""
        for master, mask in self._masks.items():
            assert master.grad is not None
            self._dense[master], master.grad = master.grad, torch.where(mask, master.grad, 0.0)

    @torch.no_grad()
    def finish(self, update: int) -> None:
        """Change the masks that are due; set masked weights and their states to zero."""
        for master, spec in self._specs.items():
            master[~self._masks[master]] = 0.0
            if spec.changes_at(update):
                dense = self._dense[master]
                self._masks[master] = next_mask(spec, self._masks[master], master, dense, update)
            states = self._optimizer.state[master].values()
            same = (t for t in states if isinstance(t, torch.Tensor) and t.shape == master.shape)
            for tensor in (master, *same):
                tensor[~self._masks[master]] = 0.0


class LossScaling:
    """The loss scale of a run: fixed, or as in ``waferstream.core.optimizer``."""

    def __init__(self, init: InitConfig) -> None:
        scaler = make_scaler(init)
        self._rule = scaler.rule if scaler.dynamic else None
        self._current = scaler.current

    @property
    def scale(self) -> float:
        """The scale of the step that comes next."""
        return self._current.scale

    def has_overflowed(self, masters: Iterable[nn.Parameter]) -> bool:
        """Return whether the step must be skipped, and go on to the next scale."""
        if self._rule is None:
            return False
        is_finite = all(bool(p.grad.isfinite().all()) for p in masters if p.grad is not None)
        self._current = self._rule.after(self._current, is_finite)
        return not is_finite
