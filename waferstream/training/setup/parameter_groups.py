"""Groups of parameters by weight decay and learning rate."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from waferstream.config.params import InitConfig
from waferstream.config.sections.optimizer import DECAYED, NOT_DECAYED
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.workload.models import known_config
from waferstream.workload.published_names import published_name

_ATTENTION = tuple(f"attention.{part}.weight" for part in ("query", "key", "value", "output"))
_INPUT = ("feed_forward.up.weight", "feed_forward.gate.weight")
_OUTPUT = ("feed_forward.down.weight",)
_EMBEDDING = (
    "embedding.weight", "token.weight", "segment.weight", "position.weight", "table.weight",
)  # fmt: skip

LEARNING_RATE_GROUPS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "embedding": ("", _EMBEDDING),
    "pooler": ("", ("pooler.weight",)),
    "lm_head": ("", ("head.weight",)),
    **{
        f"{stack}_{part}": (f"{stack}.", ends)
        for stack in ("decoder", "encoder")
        for part, ends in (
            ("kernel", (*_ATTENTION, *_INPUT, *_OUTPUT)),
            ("attention", _ATTENTION),
            ("qkv_projection", _ATTENTION[:3]),
            ("output_projection", _ATTENTION[3:]),
            ("input_ffn", _INPUT),
            ("output_ffn", _OUTPUT),
        )
    },
}
"""The stack and the ends of the names of the weights of each group with its own learning rate."""


def parameter_groups(init: InitConfig, model: nn.Module) -> list[dict[str, Any]]:
    """Return the groups of an optimizer: decayed matrices, then other parameters.

    Biases and norm weights (tensors of one dimension) are not decayed, as in the vendor's zoo. Each
    group is divided further where parameters have tags or learning rates of their own (muP). Frozen
    parameters have no group, and so no state in MemoryX.

    Raises:
        ConfigError: ``params`` of the optimizer selects no parameter, or ``adjust_learning_rate``
            names no group of the model.
    """
    assert init.optimizer is not None, "checked by the caller"
    arguments, factors = init.optimizer.arguments(), factors_of(init, model)
    not_decayed = {"weight_decay": 0.0} if "weight_decay" in arguments else {}
    tags_of = _tags_of(init, model)
    groups: dict[tuple[tuple[str, ...], float], dict[str, Any]] = {}
    for tag, own in ((DECAYED, {}), (NOT_DECAYED, not_decayed)):
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad or (parameter.ndim > 1) != (tag == DECAYED):
                continue
            factor = factors.get(name, 1.0)
            tags = (tag, *tags_of[name])
            if (key := (tags, factor)) not in groups:
                groups[key] = {"params": [], "tags": tags, **own, **_rate(arguments, factor)}
            groups[key]["params"].append(parameter)
    return list(groups.values())


def _tags_of(init: InitConfig, model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Return the tags that ``params`` of the optimizer gives to each trained parameter."""
    assert init.optimizer is not None, "checked by the caller"
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    tags: dict[str, tuple[str, ...]] = dict.fromkeys(trained, ())
    for number, each in enumerate(init.optimizer.params or ()):
        selected = [name for name in trained if each.selects(name, published_name(name))]
        if not selected:
            raise ConfigError(
                "params of the optimizer must select parameters that are trained",
                code="params-without-match",
                where=f"trainer.init.optimizer.{init.optimizer.class_name}.params[{number}]",
                value=", ".join(each.params),
                rule="a glob of names here or at the vendor",
            )
        tags.update({name: (*tags[name], each.tag) for name in selected})
    return tags


def factors_of(init: InitConfig, model: nn.Module) -> dict[str, float]:
    """Return the factor on the learning rate of each parameter that has one.

    Raises:
        ConfigError: ``adjust_learning_rate`` names no group of the model.
    """
    assert init.optimizer is not None, "checked by the caller"
    known = known_config(init.model.dump(), "trainer.init.model")
    return learning_rate_factors(
        [name for name, _ in model.named_parameters()],
        known.learning_rate_scales if known is not None else {},
        init.optimizer.adjust_learning_rate,
        known.learning_rate_groups if known is not None else None,
        f"trainer.init.optimizer.{init.optimizer.class_name}.adjust_learning_rate",
    )


def learning_rate_factors(
    names: Collection[str],
    scales: Mapping[str, float],
    adjusted: Mapping[str, float],
    groups: Mapping[str, Collection[str]] | None,
    where: str,
) -> dict[str, float]:
    """Return the factor on the learning rate of each parameter that has one.

    Args:
        names: The parameters of the model.
        scales: Factors by group, of the model.
        adjusted: Factors by group, of the user: they replace those of the model.
        groups: Globs of the parameters of each group; None for ``LEARNING_RATE_GROUPS``.
        where: The key path of the latter, for errors.

    Raises:
        ConfigError: There is no such group, or two groups give one parameter different factors.
    """
    if groups is None:
        members = {group: _members(group, names) for group in LEARNING_RATE_GROUPS}
    else:
        members = {group: _matching(globs, names) for group, globs in groups.items()}
    known = [group for group, found in members.items() if found]
    for group in adjusted if groups is None else {**scales, **adjusted}:
        if group not in known:
            raise ConfigError(
                "adjust_learning_rate must name groups of parameters",
                code="unknown-group",
                where=where,
                value=group,
                rule=f"one of {', '.join(known)}",
                remedy=did_you_mean(group, known),
            )
    factors: dict[str, float] = {}
    for group, factor in {**scales, **adjusted}.items():
        for name in members[group]:
            if factors.setdefault(name, factor) != factor:
                raise ConfigError(
                    "two groups must not give a parameter different learning rates",
                    code="learning-rates-differ",
                    where=where,
                    value=f"{name}: {factors[name]} and {factor}",
                    remedy="give the groups decoder_attention, decoder_input_ffn and "
                    "decoder_output_ffn instead of decoder_kernel",
                )
    return {name: factor for name, factor in factors.items() if factor != 1.0}


def _members(group: str, names: Collection[str]) -> list[str]:
    """Return the parameters of a group; the stack may lie in a part of the model."""
    stack, ends = LEARNING_RATE_GROUPS[group]
    return [name for name in names if f".{stack}" in f".{name}" and name.endswith(ends)]


def _matching(globs: Collection[str], names: Collection[str]) -> list[str]:
    """Return the parameters whose name here or at the vendor is matched by one of the globs."""
    return [
        name
        for name in names
        if any(fnmatchcase(each, glob) for each in (name, published_name(name)) for glob in globs)
    ]


def _rate(arguments: dict[str, Any], factor: float) -> dict[str, float]:
    """Return the keys of a group whose learning rate has a factor."""
    if factor == 1.0:
        return {}
    constant = {} if arguments.get("lr") is None else {"lr": factor * arguments["lr"]}
    return {"adjust_learning_rate": factor, **constant}
