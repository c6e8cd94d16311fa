"""Reference: the training that a params.yaml describes, as a plain PyTorch loop.

    python -m scripts.reference_loop --params params.yaml --steps 20

One model on one device, autograd, torch's optimizers, no cluster. Only model, data and the
micro-batch policy are WaferStream's. The last line is the SHA-256 that ``run.py`` prints for the
same file: weights on the cluster are bitwise equal to those of this loop. With ``--kernels
compiled`` the loop calls the segments of a cluster with ``runtime.engine.kernels: compiled``, and
says how far their gradients are from those of torch in the first step.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import nn

from scripts.reference_kernels import Segments, distance_text
from scripts.reference_update import (
    LossScaling,
    SparseWeights,
    clip,
    follow_schedules,
    make_optimizer,
    place_eps,
)
from waferstream.compiler.capture.autocast import autocast
from waferstream.compiler.lower_half import HalfMode, to_half
from waferstream.compiler.results.step_means import close_step
from waferstream.config.params import InitConfig, Params
from waferstream.config.phases import load_params
from waferstream.core.digest import weights_digest
from waferstream.core.errors import WaferStreamError
from waferstream.core.optimizer import advance, averages_among
from waferstream.core.program.micro_batches import Cut
from waferstream.core.rng import stream_key
from waferstream.numerics.precision import StreamPrecision
from waferstream.training.setup.model import make_model
from waferstream.workload.data import Batch, build_source
from waferstream.workload.models import model_config

Gradients = list[torch.Tensor]
Kernels = Literal["eager", "compiled"]


def train(
    init: InitConfig,
    batches: Iterable[Batch],
    batch_size: int,
    kernels: Kernels = "eager",
    compile_dir: Path | None = None,
) -> nn.Module:
    """Train the model of ``trainer.init`` on one global batch per step; return the model."""
    refuse_dropout(init)
    model = make_model(init)
    masters = [master for master in model.parameters() if master.requires_grad]
    optimizer = make_optimizer(init, model)
    cut = Cut.of(batch_size, micro_batch_size(init, batch_size))
    applied, scaling = 0, LossScaling(init)
    sparse = SparseWeights(init, model, optimizer)
    segments: Segments | None = None
    for step, batch in enumerate(batches, 1):
        # Copies, as a cluster's: bits of products depend on the address of what they multiply.
        rows = {
            name: [part.clone() for part in tensor.tensor_split(cut.num_micro_batches)]
            for name, tensor in batch.items()
        }
        micro_batches = [
            dict(zip(rows, tensors, strict=True)) for tensors in zip(*rows.values(), strict=True)
        ]
        shares = [weight / len(micro_batches) for weight in weights_of(model, micro_batches)]
        arguments = model, init, step, micro_batches, shares, scaling.scale
        gradients_of = partial(backward, *arguments)
        if kernels == "compiled":
            first = micro_batches[0]
            segments = segments or Segments(
                *(model, first, cut, stream_precision(init), init.seed, compile_dir)
            )
            if step == 1:
                far = distance_text(through(segments, *arguments, 0), gradients_of(0))
                print(f"Gradients of compiled kernels differ from those of torch by {far}")
            gradients_of = partial(through, segments, *arguments)
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
            advance_averages(model, applied)
        close_step(model)
    return model


@torch.no_grad()
def advance_averages(model: nn.Module, update: int) -> None:
    """Advance the parameters that are moving averages of others, after an update."""
    named = dict(model.named_parameters())
    for each in averages_among({parameter: name for name, parameter in named.items()}):
        advance(named[each.average], named[each.source], each.decay_at(update))


def weights_of(model: nn.Module, micro_batches: list[Batch]) -> list[float]:
    """Return how much each micro-batch counts in the mean loss of the batch.

    A mean over labels (``loss_scaling: num_tokens``) counts them; any other loss is a mean over
    samples.
    """
    if getattr(model.config, "loss_scaling", None) == "num_tokens":
        mask = "loss_mask" if "loss_mask" in micro_batches[0] else "attention_mask"
        counts = [int(micro_batch[mask].sum()) for micro_batch in micro_batches]
    else:
        counts = [len(next(iter(micro_batch.values()))) for micro_batch in micro_batches]
    return [count * len(counts) / sum(counts) if count else 0.0 for count in counts]


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


def through(
    segments: Segments,
    model: nn.Module,
    init: InitConfig,
    step: int,
    micro_batches: list[Batch],
    shares: list[float],
    loss_scale: float,
    index: int,
) -> Gradients:
    """Return what ``backward`` does, by compiled segments."""
    precision = stream_precision(init)
    weights = {name: streamed(master, precision) for name, master in model.named_parameters()}
    arguments = step, index, shares[index], loss_scale
    found = segments.gradients(weights, micro_batches[index], *arguments)
    return [gradient.float().contiguous() for gradient in found]


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


def micro_batch_size(init: InitConfig, batch_size: int) -> int:
    """Return the samples of a micro-batch, as a run on 1 to 8 systems takes them."""
    policy = init.micro_batch_policy("train")
    if policy.name in ("explore", "fill_wafer"):
        raise SystemExit(f"{policy.name} depends on the machine: state a micro_batch_size")
    return policy.size(batch_size, num_csx=1)


def refuse_dropout(init: InitConfig) -> None:
    """Exit if the model has dropout.

    The cluster keys its random numbers by (seed, step, micro-batch, op), which torch cannot.
    """
    rates = list(_dropout_rates(model_config(init.model.dump()).model_dump()))
    if rates:
        raise SystemExit(f"the reference loop draws no random numbers: set {', '.join(rates)} to 0")


def _dropout_rates(section: object) -> Iterator[str]:
    """Yield the keys of dropout rates above 0 in a section, and in the sections below it."""
    match section:
        case Mapping():
            for name, value in section.items():
                if "dropout" in name and isinstance(value, float) and value > 0:
                    yield name
                yield from _dropout_rates(value)
        case list() | tuple():
            for each in section:
                yield from _dropout_rates(each)


def weights_sha256(model: nn.Module) -> str:
    """Return the digest of the fp32 masters."""
    return weights_digest((name, p.detach().numpy()) for name, p in model.named_parameters())


def main() -> None:
    """Read params.yaml, train, print the digest."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--params", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--kernels", choices=get_args(Kernels), default="eager")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    try:
        model = train_params(load_params(arguments.params), arguments.steps, arguments.kernels)
    except WaferStreamError as error:
        raise SystemExit(f"Error: {error}") from error
    print(f"Weights SHA-256: {weights_sha256(model)}")


def train_params(params: Params, steps: int, kernels: Kernels = "eager") -> nn.Module:
    """Train the first ``steps`` steps of ``trainer.fit``; return the model."""
    if params.trainer.fit is None:
        raise SystemExit("params.yaml has no trainer.fit: there is nothing to train on")
    loader = params.trainer.fit.train_dataloader
    source = build_source(loader.dump(), "trainer.fit.train_dataloader")
    batches: Iterator[Batch] = map(source.batch, range(steps))
    return train(params.trainer.init, batches, source.batch_size, kernels)


if __name__ == "__main__":
    main()
