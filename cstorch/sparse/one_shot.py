"""Pruning of a trained model at once, without training: SparseGPT.

Frantar and Alistarh 2023, "SparseGPT: Massive Language Models Can Be Accurately Pruned in
One-Shot" (arXiv:2301.00774). Layer by layer in the order of the forward pass, weights are set to
zero so that the outputs of the layer on calibration batches change least, and the weights that
remain are changed to make up for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from cstorch.remote.tensor import RemoteParameter
from cstorch.sparse.filters import FilterCallable, default_sparse_param_filter
from cstorch.sparse.levels import level_of
from memoryx.sparsity.patterns import top
from waferstream.core.errors import ConfigError
from waferstream.core.sparsity.levels import Constant
from waferstream.core.sparsity.spec import kept_of

_WHERE = "cstorch.sparse.prune_one_shot"

DAMPING = 0.01
"""Share of the mean diagonal that is added to the Hessian (appendix A)."""

BLOCK_COLUMNS = 128
"""Columns whose mask is chosen at a time, and whose errors are added up (section 3.4)."""


def prune_one_shot(
    model: nn.Module,
    batches: Iterable[Any],
    sparsity: float,
    *,
    forward: Callable[[Any], object] | None = None,
    param_filter: FilterCallable = default_sparse_param_filter,
) -> dict[str, torch.Tensor]:
    """Set a share of each selected weight to zero, in place, and change the rest to make up for it.

    The model runs once per layer on all batches, in evaluation mode, so that each layer sees the
    activations of those that were pruned before. Sparse training goes on from the zeros with
    ``init_method="from_zeros"``.

    Args:
        model: A trained model, before ``cstorch.compile``.
        batches: Calibration data.
        sparsity: The share of zeros of every selected weight.
        forward: Runs the model on a batch; the model itself by default.
        param_filter: Selects weights by name; each must be that of ``nn.Linear`` modules.

    Returns:
        The masks by the names of the weights: True for what remains.

    Raises:
        ConfigError: The share is outside of 0 to 1, no weight is selected, one of them is not that
            of linear layers or has no values in this process, or calibration does not reach it.
    """
    level = level_of(sparsity, _WHERE)
    assert isinstance(level, Constant), "a number"
    layers, given, run = _selected(model, param_filter), list(batches), forward or model
    masks: dict[str, torch.Tensor] = {}
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for name in _in_order(layers, given, run):
                weight, gram = layers[name][0].weight, _gram(name, layers[name], given, run)
                pruned, masks[name] = pruned_matrix(weight, gram, level.value)
                weight.copy_(pruned)
    finally:
        model.train(was_training)
    return masks


def _selected(model: nn.Module, param_filter: FilterCallable) -> dict[str, Sequence[nn.Linear]]:
    """Return the linear layers that own each selected weight, by its name."""
    owners: dict[nn.Parameter, list[nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(parameter, []).append(module)
    found: dict[str, Sequence[nn.Linear]] = {}
    for name, parameter in model.named_parameters():
        if param_filter(name, parameter):
            layers = [m for m in owners[parameter] if isinstance(m, nn.Linear)]
            whole = len(layers) == len(owners[parameter])
            if not whole or any(layer.weight is not parameter for layer in layers):
                raise _unfit(name, "weights of nn.Linear alone can be pruned at once")
            if parameter.is_meta or isinstance(parameter, RemoteParameter):
                raise _unfit(name, "the model must have its values, and not be compiled yet")
            found[name] = layers
    if not found:
        raise ConfigError(
            "a filter must select parameters of the model",
            code="sparsity-filter-matches-nothing",
            where=_WHERE,
            rule=f"parameters: {', '.join([n for n, _ in model.named_parameters()][:4])}, ...",
        )
    return found


def _unfit(name: str, rule: str) -> ConfigError:
    return ConfigError(
        "a weight cannot be pruned at once",
        code="one-shot-weight-unfit",
        where=_WHERE,
        value=name,
        rule=rule,
        remedy="leave it out by param_filter, or prune before cstorch.compile",
    )


def _in_order(
    layers: Mapping[str, Sequence[nn.Linear]],
    batches: Sequence[Any],
    run: Callable[[Any], object],
) -> Sequence[str]:
    """Return the names of weights in the order in which a forward pass reads them."""
    order: dict[str, None] = {}

    def note(name: str, _inputs: torch.Tensor) -> None:
        order.setdefault(name)

    with _inputs_seen(layers, note):
        for batch in batches:
            run(batch)
    if missing := sorted(layers.keys() - order.keys()):
        raise ConfigError(
            "calibration must reach every weight that is pruned",
            code="one-shot-weight-not-reached",
            where=_WHERE,
            value=", ".join(missing[:4]),
            rule=f"{len(batches)} batches; a layer is seen when its module is called",
            remedy="give more batches, or leave the weights out by param_filter",
        )
    return list(order)


def _gram(
    name: str,
    layers: Sequence[nn.Linear],
    batches: Sequence[Any],
    run: Callable[[Any], object],
) -> torch.Tensor:
    """Return the sum of x x^T over all inputs x that a weight is multiplied by, in fp64."""
    weight = layers[0].weight
    size = weight.shape[1]
    gram = torch.zeros(size, size, dtype=torch.float64, device=weight.device)

    def add(_name: str, inputs: torch.Tensor) -> None:
        rows = inputs.reshape(-1, size).double()
        gram.addmm_(rows.t(), rows)

    with _inputs_seen({name: layers}, add):
        for batch in batches:
            run(batch)
    if not gram.isfinite().all():
        raise ConfigError(
            "the inputs of a layer must be finite to prune it",
            code="calibration-not-finite",
            where=_WHERE,
            value=name,
            remedy="prune a checkpoint whose weights are finite, on batches that are",
        )
    return gram


@contextmanager
def _inputs_seen(
    layers: Mapping[str, Sequence[nn.Linear]], see: Callable[[str, torch.Tensor], None]
) -> Iterator[None]:
    """Call ``see`` with the name of a weight and its input whenever a layer that owns it runs."""

    def hook(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        return lambda _module, inputs: see(name, inputs[0])

    handles = [
        layer.register_forward_pre_hook(hook(name))
        for name, owners in layers.items()
        for layer in owners
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def pruned_matrix(
    weight: torch.Tensor, gram: torch.Tensor, share: float, block_columns: int = BLOCK_COLUMNS
) -> tuple[torch.Tensor, torch.Tensor]:
    """Prune one matrix by algorithm 1 of the paper.

    Column by column, a pruned weight w leaves the error w / [H^-1]_jj, for which the columns behind
    it make up; [H^-1] is the inverse of the Hessian of the columns from j on, so one Cholesky
    factor of the whole inverse has what every column needs (section 3.2).

    Args:
        weight: (outputs, inputs).
        gram: (inputs, inputs), fp64: sum of x x^T over the inputs x of the layer.
        share: The share of zeros; each block of columns has it, to one weight.
        block_columns: Columns whose mask is chosen at a time.

    Returns:
        The pruned matrix in fp64, and its mask.
    """
    values, factor = weight.to(torch.float64, copy=True), _factor(gram)
    mask = torch.ones_like(values, dtype=torch.bool)
    rows, columns = values.shape
    all_kept, kept_before = kept_of(values.numel(), share), 0
    for first in range(0, columns, block_columns):
        last = min(first + block_columns, columns)
        block, own = values[:, first:last], factor[first:last, first:last]
        kept = all_kept * last // columns
        score = (block / own.diagonal()).square()
        # The copy is contiguous, as a block of columns is not.
        mask[:, first:last] = top(score.flatten(), kept - kept_before).view(rows, -1)
        kept_before = kept
        errors = _prune_block(block, mask[:, first:last], own)
        values[:, last:] -= errors @ factor[first:last, last:]
    return values.masked_fill_(~mask, 0.0), mask


def _prune_block(block: torch.Tensor, mask: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Prune some columns in place; return their errors, for which the columns behind make up."""
    errors = torch.zeros_like(block)
    for column in range(block.shape[1]):
        error = block[:, column] / factor[column, column]
        errors[:, column] = error.masked_fill(mask[:, column], 0.0)
        block[:, column:] -= torch.outer(errors[:, column], factor[column, column:])
    return errors


def _factor(gram: torch.Tensor) -> torch.Tensor:
    """Return the upper Cholesky factor of the inverse of the damped Hessian.

    Without any input (a layer that reads zeros alone) all weights cost the same.
    """
    mean = float(gram.diagonal().mean())
    hessian = gram + (DAMPING * mean or 1.0) * torch.eye(len(gram)).to(gram)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(hessian))
    factor: torch.Tensor = torch.linalg.cholesky(inverse, upper=True)
    return factor
