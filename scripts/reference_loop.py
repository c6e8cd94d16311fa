"""Reference: the training that a params.yaml describes, as a plain PyTorch loop.

    python scripts/reference_loop.py --params params.yaml --steps 20

One model on one device, autograd, torch's optimizers, no cluster. Only model, data and the
micro-batch policy are WaferStream's. The last line is the SHA-256 that ``run.py`` prints for the
same file: weights on the cluster are bitwise equal to those of this loop.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import torch
from torch import nn

from cstorch.sparse.configuration import build as build_sparsity
from memoryx.sparsity.patterns import first_mask, next_mask
from modelzoo.data.registry import build_source
from modelzoo.data.source import Batch
from modelzoo.published_names import published_name
from waferstream.config.params import InitConfig, Params, load_params
from waferstream.training.build import make_model, make_scaler
from waferstream.training.parameter_groups import parameter_groups
from wsc.compiler.autocast import autocast
from wsc.compiler.half_tensor import HalfMode, to_half
from wsc.compiler.precision import StreamPrecision
from wsc.core.digest import weights_digest
from wsc.core.errors import WaferStreamError
from wsc.core.micro_batches import Cut
from wsc.core.rng import stream_key
from wsc.core.sparsity import WeightSparsity

Gradients = list[torch.Tensor]

FUSED = ("SGD", "Adam", "AdamW")
"""Optimizers that are fused kernels in torch, which the cluster matches bit for bit."""

UNFUSED = ("Adadelta", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")
"""Optimizers that torch applies to one tensor after the other, matched bit for bit as well."""


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


def train(init: InitConfig, batches: Iterable[Batch], batch_size: int) -> nn.Module:
    """Train the model of ``trainer.init`` on one global batch per step; returns the model."""
    refuse_dropout(init)
    model = make_model(init)
    masters = [master for master in model.parameters() if master.requires_grad]
    optimizer = make_optimizer(init, model)
    cut = Cut.of(batch_size, micro_batch_size(init, batch_size))
    applied, scaling = 0, LossScaling(init)
    sparse = SparseWeights(init, model, optimizer)
    for step, batch in enumerate(batches, 1):
        rows = {name: tensor.tensor_split(cut.num_micro_batches) for name, tensor in batch.items()}
        micro_batches = [
            dict(zip(rows, tensors, strict=True)) for tensors in zip(*rows.values(), strict=True)
        ]
        shares = [weight / len(micro_batches) for weight in weights_of(model, micro_batches)]
        gradients_of = partial(backward, model, init, step, micro_batches, shares, scaling.scale)
        for master, gradient in zip(
            masters, tree_sum(gradients_of, len(micro_batches)), strict=True
        ):
            master.grad = gradient / scaling.scale
        sparse.mask_gradients()
        if not scaling.has_overflowed(masters):
            clip(init, masters)
            follow_schedules(init, optimizer, applied)
            applied += 1
            place_eps(init, optimizer, applied)
            optimizer.step()
            sparse.finish(applied)
    return model


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
    """The loss scale of a run: fixed, or dynamic as in ``wsc.core.loss_scale``."""

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


def weights_of(model: nn.Module, micro_batches: list[Batch]) -> list[float]:
    """Return how much each micro-batch counts in the mean loss of the batch.

    A mean over labels (``loss_scaling: num_tokens``) counts them; any other loss is a mean over
    samples.
    """
    if getattr(model.config, "loss_scaling", None) == "num_tokens":
        counts = [int(micro_batch["attention_mask"].sum()) for micro_batch in micro_batches]
    else:
        counts = [len(next(iter(micro_batch.values()))) for micro_batch in micro_batches]
    return [count * len(counts) / sum(counts) if count else 0.0 for count in counts]


def follow_schedules(init: InitConfig, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Set the hyper-parameters of a step, counted from 0, as configured."""
    for scheduler in init.schedulers:
        for group in optimizer.param_groups:
            tags = scheduler.param_group_tags
            if tags is None or group["tag"] in tags:
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


def backward(
    model: nn.Module,
    init: InitConfig,
    step: int,
    micro_batches: list[Batch],
    shares: list[float],
    loss_scale: float,
    index: int,
) -> Gradients:
    """Return the part of a micro-batch in the gradients of the mean loss of the batch."""
    precision = stream_precision(init)
    weights = {
        name: streamed(master, precision).to(precision.compute_dtype)
        for name, master in model.named_parameters()
    }
    masters = dict(model.named_parameters())
    trained = [w.requires_grad_() for name, w in weights.items() if masters[name].requires_grad]
    if not shares[index]:
        return [torch.zeros_like(weight, dtype=torch.float32) for weight in trained]
    with rounding(init, precision, step, index), autocast(precision):
        loss = torch.func.functional_call(model, weights, kwargs=micro_batches[index])
        scaled = loss * loss_scale
        share = torch.full_like(scaled, shares[index])
        gradients = torch.autograd.grad(scaled, trained, share)
    # Torch's fused optimizers read a gradient in the order of its memory.
    return [gradient.float().contiguous() for gradient in gradients]


def rounding(
    init: InitConfig, precision: StreamPrecision, step: int, micro_batch: int
) -> AbstractContextManager[object]:
    """Return the context in which a micro-batch rounds as on the cluster."""
    if precision.rounding == "stochastic":
        return HalfMode(precision.stream, stream_key(init.seed, step, micro_batch))
    return HalfMode("cbfloat16") if precision.stream == "cbfloat16" else nullcontext()


def streamed(master: torch.Tensor, precision: StreamPrecision) -> torch.Tensor:
    """Return a weight in the type in which it streams."""
    if precision.stream == "cbfloat16" or precision.rounding == "stochastic":
        return to_half(master.detach(), precision.stream)
    return master.detach().to(precision.stream_dtype)


def stream_precision(init: InitConfig) -> StreamPrecision:
    """Return the types in which weights stream and functions compute."""
    section = init.precision
    in_half = section.precision_opt_level == 2
    return StreamPrecision(
        section.stream_dtype,
        section.compute_dtype,
        softmax_in_half=in_half,
        rounding="stochastic" if section.stochastic_rounding else "nearest",
    )


def tree_sum(gradients_of: Callable[[int], Gradients], count: int) -> Gradients:
    """Return the sum over ``count`` micro-batches as a binary tree over the next power of two."""

    def subtree(first: int, size: int) -> Gradients:
        if size == 1:
            return gradients_of(first)
        left = subtree(first, size // 2)
        if first + size // 2 >= count:
            return left
        right = subtree(first + size // 2, size // 2)
        return [a + b for a, b in zip(left, right, strict=True)]

    return subtree(0, 1 << (count - 1).bit_length())


def clip(init: InitConfig, masters: Iterable[nn.Parameter]) -> None:
    """Clip gradients by value, then by global norm, as configured."""
    if init.precision.max_gradient_value is not None:
        nn.utils.clip_grad_value_(masters, init.precision.max_gradient_value)
    if init.precision.max_gradient_norm is not None:
        nn.utils.clip_grad_norm_(masters, init.precision.max_gradient_norm)


def micro_batch_size(init: InitConfig, batch_size: int) -> int:
    """Return the samples of a micro-batch, as a run on 1 to 8 systems takes them."""
    policy = init.micro_batch_policy("train")
    if policy.name in ("explore", "fill_wafer"):
        raise SystemExit(f"{policy.name} depends on the machine: state a micro_batch_size")
    return policy.size(batch_size, num_csx=1)


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
        {**group, "tag": group.pop("tags"), "factor": group.pop("adjust_learning_rate", 1.0)}
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


def refuse_dropout(init: InitConfig) -> None:
    """Exit if the model has dropout.

    The cluster keys its random numbers by (seed, step, micro-batch, op), which torch cannot.
    """
    rates = ("dropout_rate", "embedding_dropout_rate", "attention_dropout_rate")
    if any(init.model.dump().get(rate) != 0 for rate in rates):
        raise SystemExit(f"the reference loop draws no random numbers: set {', '.join(rates)} to 0")


def weights_sha256(model: nn.Module) -> str:
    """Return the digest of the fp32 masters."""
    return weights_digest((name, p.detach().numpy()) for name, p in model.named_parameters())


def main() -> None:
    """Read params.yaml, train, print the digest."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--params", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    try:
        model = train_params(load_params(arguments.params), arguments.steps)
    except WaferStreamError as error:
        raise SystemExit(f"Error: {error}") from error
    print(f"Weights SHA-256: {weights_sha256(model)}")


def train_params(params: Params, steps: int) -> nn.Module:
    """Train the first ``steps`` steps of ``trainer.fit``; returns the model."""
    if params.trainer.fit is None:
        raise SystemExit("params.yaml has no trainer.fit: there is nothing to train on")
    loader = params.trainer.fit.train_dataloader
    source = build_source(loader.dump(), "trainer.fit.train_dataloader")
    batches: Iterator[Batch] = map(source.batch, range(steps))
    return train(params.trainer.init, batches, source.batch_size)


if __name__ == "__main__":
    main()
