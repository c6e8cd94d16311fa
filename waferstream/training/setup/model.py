"""Model, optimizer, schedulers, loss scale, and what the cluster watches."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import nn

import cstorch
from cstorch.amp import GradScaler
from cstorch.optim.optimizer import Optimizer
from cstorch.optim.scheduler import Scheduler
from cstorch.sparse import selective_grad
from cstorch.sparse.configuration import build as build_sparsity
from cstorch.sparse.configuration import filter_of
from waferstream.config.params import InitConfig
from waferstream.config.sections.callbacks import (
    ComputeNorm,
    Lora,
    NaNChecker,
    NotFiniteSteps,
    SelectiveGrad,
)
from waferstream.config.sections.lora import LoraConfig
from waferstream.config.sections.section import MAX_STEP
from waferstream.core.errors import ConfigError
from waferstream.core.hyper_schedules.base import scheduler_name
from waferstream.core.hyper_schedules.build import argument_names
from waferstream.core.hyper_schedules.composed import ScalePerParamLR
from waferstream.core.messages.watch import Watch
from waferstream.core.optimizer import averages_among
from waferstream.core.rng import stream_key
from waferstream.training.setup.parameter_groups import parameter_groups
from waferstream.workload.models import build_model
from waferstream.workload.published_names import published_name

log = logging.getLogger("waferstream")

_SCHEDULERS = {
    "lr": cstorch.optim.lr_scheduler,
    "weight_decay": cstorch.optim.weight_decay_scheduler,
}
"""The module of the schedulers of a hyper-parameter."""

_VENDOR_NAMES = {
    "TransformerLayer": ("TransformerDecoderLayer", "TransformerEncoderLayer"),
    "Attention": ("MultiheadAttention",),
    "FeedForward": ("FeedForwardNetwork",),
}
"""Names that classes of ``modelzoo.models`` have in the vendor's zoo."""


def make_model(init: InitConfig) -> nn.Module:
    """Build the model with its initial weights, adapted as the callback ``Lora`` says."""
    model = build_model(init.model.dump(), init.seed, "trainer.init.model")
    lora = init.callback(Lora)
    return model if lora is None else add_lora(model, lora.lora_params, init.seed)


def select_gradients(init: InitConfig, model: nn.Module) -> None:
    """Let some elements of initialized weights be trained, as ``SelectiveGrad`` says.

    Raises:
        ConfigError: A filter selects no parameter that is trained, or one of another filter.
    """
    selective = init.callback(SelectiveGrad)
    for section in () if selective is None else selective.selective_grads:
        selects = filter_of(section.param_filter, published_name)
        chosen = selective_grad.SelectiveGrad(selects, section.init_method)
        model.apply(chosen)
        if not chosen.names:
            raise ConfigError(
                "a filter must select parameters of the model",
                code="selective-grad-without-parameter",
                where="trainer.init.callbacks.SelectiveGrad",
                value=section.param_filter,
                rule=f"parameters: {', '.join(n for n, _ in model.named_parameters())}",
            )


def make_optimizer(init: InitConfig, model: nn.Module) -> tuple[Optimizer, list[Scheduler]]:
    """Build the optimizer, with the groups of ``parameter_groups``, and its schedulers.

    The weights that the section ``sparsity`` names become sparse.
    """
    assert init.optimizer is not None, "checked by the caller"
    _say_unused_rate(init)
    kind = getattr(cstorch.optim, init.optimizer.class_name)
    optimizer: Optimizer = kind(parameter_groups(init, model), **init.optimizer.arguments())
    if init.sparsity:
        sparsity = build_sparsity(init.sparsity, published_name)
        model.apply(sparsity)
        optimizer.apply(sparsity)
    return optimizer, list(_schedulers(init, optimizer))


def _say_unused_rate(init: InitConfig) -> None:
    """Warn of a learning rate that a scheduler of all parameters replaces at every step."""
    assert init.optimizer is not None, "checked by the caller"
    unlimited = (s for s in init.schedulers if s.key == "lr" and not s.param_group_tags)
    scheduler = next(unlimited, None)
    is_given = init.optimizer.lr != type(init.optimizer).model_fields["lr"].default
    if is_given and scheduler is not None:
        log.warning(
            "lr: %s of the optimizer has no effect: %s sets the learning rate of every step",
            init.optimizer.lr,
            scheduler.name,
        )


def _schedulers(init: InitConfig, optimizer: Optimizer) -> Iterator[Scheduler]:
    has_factors = any("adjust_learning_rate" in group for group in optimizer.param_groups)
    for config in init.schedulers:
        schedule = config.schedule
        if has_factors and config.key == "lr":
            schedule = ScalePerParamLR(scheduler=schedule)
        kind = getattr(_SCHEDULERS[config.key], scheduler_name(type(schedule).__name__, config.key))
        names = argument_names(type(schedule), config.key)
        arguments = {own: getattr(schedule, name) for name, own in names.items()}
        yield kind(optimizer=optimizer, param_group_tags=config.param_group_tags, **arguments)


def make_scaler(init: InitConfig) -> GradScaler:
    """Build the loss scale; a dynamic one only for half types that need it."""
    section = init.precision
    policy = init.callback(NotFiniteSteps) or NotFiniteSteps()
    skips = policy.action != "stop"
    if section.loss_scaling_factor == "dynamic" and not section.scales_dynamically:
        log.info("The type %s needs no loss scale: none is used", section.stream_dtype)
        return GradScaler(skips_not_finite=skips)
    return GradScaler(
        section.loss_scaling_factor,
        init_scale=section.initial_loss_scale,
        steps_per_increase=section.steps_per_increase,
        min_loss_scale=section.min_loss_scale,
        max_loss_scale=section.max_loss_scale,
        skips_not_finite=skips,
    )


def make_watch(init: InitConfig, start: int) -> Watch:
    """Return the values to watch in a training that continues after step ``start``."""
    checker, device = init.callback(NaNChecker), init.backend.backend_type
    if device != "CSX" and (checker or init.callback(ComputeNorm)):
        log.warning("ComputeNorm and NaNChecker have no effect on %s", device)
    finite_to = 0 if checker is None else start + (checker.num_steps or MAX_STEP)
    return Watch(norms=init.callback(ComputeNorm) is not None, finite_to=finite_to)


class LoraLinear(nn.Linear):
    """A frozen linear layer with trained matrices beside it."""

    def __init__(self, layer: nn.Linear, config: LoraConfig) -> None:
        nn.Module.__init__(self)  # nn.Linear would allocate and draw a weight
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        self.config = config
        self.scaling = config.alpha / config.r
        self.lora_A = nn.Parameter(self.weight.new_empty(config.r, self.in_features))
        self.lora_B = nn.Parameter(self.weight.new_empty(self.out_features, config.r))

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Draw A as torch draws a linear weight; set B to zero."""
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5), generator=generator)
        self.lora_B.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (..., out_features) for (..., in_features)."""
        weight = self.weight.T if self.config.fan_in_fan_out else self.weight
        if self.config.merge_weights and not self.training:
            return F.linear(x, weight + (self.lora_B @ self.lora_A) * self.scaling, self.bias)
        inner = F.dropout(x, self.config.dropout, self.training)
        low_rank = F.linear(F.linear(inner, self.lora_A), self.lora_B)
        return F.linear(x, weight, self.bias) + low_rank * self.scaling


class LoraEmbedding(nn.Embedding):
    """A frozen embedding with trained matrices beside it."""

    def __init__(self, layer: nn.Embedding, config: LoraConfig) -> None:
        nn.Module.__init__(self)
        self.num_embeddings, self.embedding_dim = layer.num_embeddings, layer.embedding_dim
        self.padding_idx, self.max_norm, self.norm_type = layer.padding_idx, None, layer.norm_type
        self.scale_grad_by_freq, self.sparse = layer.scale_grad_by_freq, layer.sparse
        self.weight = layer.weight
        self.config = config
        self.scaling = config.alpha / config.r
        self.lora_A = nn.Parameter(self.weight.new_empty(config.r, self.num_embeddings))
        self.lora_B = nn.Parameter(self.weight.new_empty(self.embedding_dim, config.r))

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Set A to zero; draw B from the standard normal distribution."""
        self.lora_A.zero_()
        self.lora_B.normal_(generator=generator)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return (..., embedding_dim) for integers."""
        if self.config.merge_weights and not self.training:
            merged = self.weight + (self.lora_B @ self.lora_A).T * self.scaling
            return F.embedding(ids, merged, self.padding_idx)
        inner = F.embedding(ids, self.lora_A.T, self.padding_idx)
        return super().forward(ids) + F.linear(inner, self.lora_B) * self.scaling


def add_lora(model: nn.Module, configs: Sequence[LoraConfig], seed: int) -> nn.Module:
    """Adapt modules of a model in place, and freeze everything else; the first match counts.

    A module keeps the children that it names in ``unadapted`` as they are.

    Args:
        model: The model with its initial weights.
        configs: Kinds of adaptation.
        seed: Each new matrix is drawn from it and from its module's name.

    Returns:
        The model, or what takes its place where the model itself is one layer.

    Raises:
        ConfigError: No module of the model is adapted, or weights are averages of others.
    """
    _refuse_averages(model)
    for parameter in model.parameters():
        parameter.requires_grad = False
    adapted = _adapted(model, configs, ())
    layers = list(_lora_layers(adapted))
    if not layers:
        raise ConfigError(
            "target_modules must name linear layers or embeddings of the model",
            code="lora-without-target",
            where="trainer.init.callbacks.Lora",
            value="; ".join(str(config.target_modules) for config in configs),
            rule=f"classes of the model: {', '.join(sorted(_all_names(model)))}",
        )
    for name, layer in layers:
        layer.initialize(torch.Generator().manual_seed(stream_key(seed, "lora", name)))
    return adapted


def _refuse_averages(model: nn.Module) -> None:
    """Raise ConfigError for a model with weights that follow the ones that would be frozen."""
    names: dict[torch.Tensor, str] = {p: name for name, p in model.named_parameters()}
    averages = [each.average for each in averages_among(names)]
    if averages:
        raise ConfigError(
            "a model whose weights average others cannot be adapted",
            code="lora-with-averages",
            where="trainer.init.callbacks.Lora",
            value=f"{averages[0]} and {len(averages) - 1} more",
            rule="an average follows weights that are trained, which Lora freezes",
            remedy="leave out Lora, or ema of the model",
        )


def _adapted(
    module: nn.Module, configs: Sequence[LoraConfig], above: tuple[nn.Module, ...]
) -> nn.Module:
    """Return a module, or the layer that takes its place, after adapting those below it."""
    path, kept = (*above, module), getattr(module, "unadapted", ())
    for name, child in module.named_children():
        if name not in kept:
            setattr(module, name, _adapted(child, configs, path))
    config = next((config for config in configs if config.adapts(_names_above(path))), None)
    if config is None:
        return module
    if type(module) is nn.Embedding and module.max_norm is None:
        return LoraEmbedding(module, config)
    return LoraLinear(module, config) if type(module) is nn.Linear else module


def _lora_layers(model: nn.Module) -> Iterator[tuple[str, LoraLinear | LoraEmbedding]]:
    for name, module in model.named_modules():
        if isinstance(module, LoraLinear | LoraEmbedding):
            yield name, module


def _all_names(model: nn.Module) -> set[str]:
    return _names_above(list(model.modules()))


def _names_above(path: Sequence[nn.Module]) -> set[str]:
    return {name for module in path for name in _names_of(type(module))}


def _names_of(kind: type[nn.Module]) -> Iterator[str]:
    """Yield the names of a class: its own, those of its bases, and the vendor's."""
    for base in kind.__mro__:
        if base is nn.Module:
            return
        yield base.__name__
        yield from _VENDOR_NAMES.get(base.__name__, ())
