"""Rules that pair the weights of transformers' models with ours, and apply them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from typing import Any, cast

import torch

from waferstream.core.errors import CheckpointError, did_you_mean
from waferstream.workload.models import ParameterNames, parameter_names

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Rule:
    """A weight of transformers, and ours that it holds one after the other.

    ``{i}`` is a layer, ``{p}`` weight or bias; ``{e}`` an expert, of which ours are stacked. Rules
    for weights that a model lacks are unused.
    """

    theirs: str
    ours: tuple[str, ...]
    is_transposed: bool = False
    """Whether matrices are stored (inputs, outputs), as by transformers' Conv1D."""
    pairs_neighbours: bool = False
    """Whether rotated rows of a head are neighbours; the pairs of ours are half a head apart."""
    interleaves_heads: bool = False
    """Whether our weights lie one after the other in each head of keys, not in the whole."""
    interleaves_rows: bool = False
    """Whether rows of our weights take turns."""
    offset: float = 0.0
    """What ours are larger by: a norm may store its difference from 1."""
    shape: tuple[int | str, ...] = ()
    """Their shape, where ours has fewer dimensions: sizes, keys of the section, -1 for the rest."""
    channels_last: bool = False
    """Whether the pixels of a patch have their channels one after the other; of ``shape``."""
    only: tuple[str, Any] | None = None
    """A key of the section, and the value that it must have: other models lack the weight."""
    ends_with_first: bool = False
    """Whether their last row is our first."""
    part: tuple[str | int, ...] = ()
    """Path in the section to the sizes that are meant, of a model that has several parts."""


def rule(theirs: str, *ours: str, **more: Any) -> Rule:
    """Declare a rule."""
    return Rule(theirs, ours, **more)


def matched(
    rules: Sequence[Rule], weights: Mapping[str, torch.Tensor], section: Mapping[str, Any]
) -> Weights:
    """Return the weights of transformers that our model of a section has."""
    known = parameter_names(section)
    pairs = _pairs(rules, known, section)
    names = {name for theirs, ours, _ in pairs for name in _names(theirs, known.shape(ours[0]))}
    return {name: weight for name, weight in weights.items() if name in names}


def to_ours(
    rules: Sequence[Rule], weights: Mapping[str, torch.Tensor], section: Mapping[str, Any]
) -> Weights:
    """Return the weights of our model of a section of params.yaml.

    Raises:
        CheckpointError: A weight is missing or left over, or has another shape.
    """
    _refuse_more_layers(section, len(weights))
    known = parameter_names(section)
    found: Weights = {}
    used: set[str] = set()
    for theirs, ours, each in _pairs(rules, known, section):
        own = [known.shape(name) for name in ours]
        if ours[0] in known.tied:
            used |= {*_names(theirs, own[0])}
            continue
        tensors = {name: _known(weights, name) for name in _names(theirs, own[0])}
        used |= tensors.keys()
        try:
            tensor = _stacked(theirs, tensors, own[0])
            found |= zip(ours, _split(tensor, each, own, section), strict=True)
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            sizes = ", ".join(str(tuple(each.shape)) for each in tensors.values())
            raise _other_shape(", ".join(tensors), f"{sizes}, for {own}") from error
    for name, shape in known.shapes.items():
        if tuple(_known(found, name).shape) != shape:
            raise _other_shape(name, f"{tuple(found[name].shape)}, expected {shape}")
    _refuse_rest(weights, used)
    return found | {alias: found[name] for alias, name in known.tied.items()}


def _refuse_more_layers(section: Mapping[str, Any], num_weights: int) -> None:
    """Raise CheckpointError for more layers than weights: a model of them all takes long."""
    for key, value in section.items():
        if isinstance(value, Mapping):
            _refuse_more_layers(value, num_weights)
        elif key.endswith("num_hidden_layers") and (value or 0) > num_weights:
            raise CheckpointError(
                "every layer of the model must have weights",
                code="no-such-tensor",
                value=f"{value} layers, {num_weights} weights",
                remedy="convert it with the configuration of the same model",
            )


def _names(theirs: str, shape: tuple[int, ...]) -> Iterator[str]:
    """Yield the name of a weight, or those of the experts that ours of a shape stacks."""
    return (theirs.format(e=e) for e in range(shape[0] if "{e}" in theirs else 1))


def _stacked(theirs: str, tensors: Weights, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the only tensor, or a stack of those of experts, for a shape of ours."""
    if "{e}" not in theirs:
        return next(iter(tensors.values()))
    if any(each.shape != shape[1:] for each in tensors.values()):
        raise ValueError("an expert of another shape")
    return torch.stack(list(tensors.values()))


def _split(
    tensor: torch.Tensor, by: Rule, shapes: Sequence[tuple[int, ...]], section: Mapping[str, Any]
) -> list[torch.Tensor]:
    """Return the parts of a weight of transformers that are ours.

    They share its memory where their rule allows. Its size is compared first: a file of some bytes
    can state any number of equal elements.
    """
    if tensor.numel() != sum(map(prod, shapes)) or not tensor.is_floating_point():
        raise ValueError("another number or type of elements")
    section = _part_of(section, by)
    if by.channels_last:
        tensor = tensor.reshape(_sizes(by.shape, section)).permute(0, 3, 1, 2)
    if by.shape:
        return [tensor.reshape(shapes[0])]
    if by.ends_with_first:
        return [tensor.roll(1, 0)]
    if by.is_transposed and tensor.ndim > 1:
        tensor = tensor.transpose(-2, -1)
    if by.interleaves_rows:
        return [part.contiguous() for part in _taking_turns(tensor, len(shapes))]
    if by.interleaves_heads:
        tensor = _out_of_heads(tensor, [shape[0] for shape in shapes], section)
    if by.offset:
        tensor = (tensor.float() + by.offset).to(tensor.dtype)
    parts = tensor.split([shape[0] for shape in shapes] if len(shapes) > 1 else len(tensor))
    if by.pairs_neighbours:
        parts = tuple(_halves(part, section) for part in parts)
    return [part.contiguous() for part in parts]


def _out_of_heads(
    tensor: torch.Tensor, rows: Sequence[int], section: Mapping[str, Any]
) -> torch.Tensor:
    """Return rows of parts one after the other, which lay so in each head of keys."""
    heads = _num_kv_heads(section)
    each = tensor.unflatten(0, (heads, -1)).split([number // heads for number in rows], dim=1)
    return torch.cat([part.flatten(0, 1) for part in each])


def _into_heads(parts: Sequence[torch.Tensor], section: Mapping[str, Any]) -> torch.Tensor:
    """Return rows of parts, which lie one after the other in each head of keys."""
    heads = _num_kv_heads(section)
    return torch.cat([part.unflatten(0, (heads, -1)) for part in parts], dim=1).flatten(0, 1)


def _num_kv_heads(section: Mapping[str, Any]) -> int:
    extra = section["extra_attention_params"] or {}
    return int(extra.get("num_kv_groups", section["num_heads"]))


def _taking_turns(tensor: torch.Tensor, count: int) -> tuple[torch.Tensor, ...]:
    """Return every ``count``-th row of each expert (E, rows, ...), from each of the first on."""
    parts: tuple[torch.Tensor, ...] = tensor.unflatten(1, (-1, count)).unbind(2)
    return parts


def _in_turns(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the rows of each expert, which the parts give in turns."""
    return torch.stack(list(parts), dim=2).flatten(1, 2)


def to_theirs(
    rules: Sequence[Rule], weights: Mapping[str, torch.Tensor], section: Mapping[str, Any]
) -> Weights:
    """Return the weights of transformers' model; arguments and errors as of ``to_ours``."""
    known = parameter_names(section)
    found: Weights = {}
    used: set[str] = {*known.tied}
    for theirs, ours, each in _pairs(rules, known, section):
        sources = [known.tied.get(name, name) for name in ours]
        tensor = _joined([_known(weights, name) for name in sources], each, section)
        used |= {*sources}
        names = list(_names(theirs, tensor.shape))
        pieces = tensor.unbind() if "{e}" in theirs else (tensor,)
        found |= zip(names, (piece.contiguous() for piece in pieces), strict=True)
    _refuse_rest(weights, used)
    return found


def _joined(parts: list[torch.Tensor], by: Rule, section: Mapping[str, Any]) -> torch.Tensor:
    """Return the weight of transformers that holds some of ours."""
    section = _part_of(section, by)
    if by.channels_last:
        rows, *patch, channels = _sizes(by.shape, section)
        return parts[0].reshape(rows, channels, *patch).permute(0, 2, 3, 1).flatten(1)
    if by.shape:
        return parts[0].reshape(_sizes(by.shape, section))
    if by.ends_with_first:
        return parts[0].roll(-1, 0)
    if by.pairs_neighbours:
        parts = [_neighbours(part, section) for part in parts]
    if by.interleaves_rows:
        tensor = _in_turns(parts)
    elif by.interleaves_heads:
        tensor = _into_heads(parts, section)
    else:
        tensor = torch.cat(parts) - by.offset
    return tensor.transpose(-2, -1) if by.is_transposed and tensor.ndim > 1 else tensor


def _part_of(section: Mapping[str, Any], by: Rule) -> Mapping[str, Any]:
    """Return the section with the sizes that a rule means."""
    found: Any = section
    for key in by.part:
        found = found[key]
    return cast("Mapping[str, Any]", found)


def _sizes(shape: Sequence[int | str], section: Mapping[str, Any]) -> list[int]:
    """Return the sizes of a rule's shape; a key of the section may stand for several."""
    found: list[int] = []
    for each in shape:
        value = section[each] if isinstance(each, str) else each
        found += [value] if isinstance(value, int) else value
    return found


def _pairs(
    rules: Sequence[Rule], known: ParameterNames, section: Mapping[str, Any]
) -> Iterator[tuple[str, list[str], Rule]]:
    """Yield their name, our names and the rule of every weight that our model has."""
    for each in rules:
        if each.only is not None and section[each.only[0]] != each.only[1]:
            continue
        for i in count():
            is_there = False
            for p in ("weight", "bias") if "{p}" in each.theirs else ("",):
                ours = [name.format(i=i, p=p) for name in each.ours]
                if ours[0] in known.shapes or ours[0] in known.tied:
                    is_there = True
                    yield each.theirs.format(i=i, p=p, e="{e}"), ours, each
            if not is_there or "{i}" not in each.theirs:
                break


def _other_shape(name: str, value: str) -> CheckpointError:
    return CheckpointError(
        f"weight {name!r} has another shape than in the model",
        code="tensor-mismatch",
        value=value,
        remedy="convert it with the configuration of the same model",
    )


def _known(weights: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    if name not in weights:
        raise CheckpointError(
            f"the checkpoint holds no weight {name!r}",
            code="no-such-tensor",
            remedy=did_you_mean(name, weights),
        )
    return weights[name]


def _refuse_rest(weights: Mapping[str, torch.Tensor], used: set[str]) -> None:
    rest = [name for name in weights if name not in used]
    if rest:
        raise CheckpointError(
            "every weight of the checkpoint must have a place in the model",
            code="unmatched-weights",
            value=", ".join(rest[:5]) + (f", ... ({len(rest)} in total)" if rest[5:] else ""),
            remedy="convert with the configuration of the same model, or --drop-unmatched-keys",
        )


def _halves(rows: torch.Tensor, section: Mapping[str, Any]) -> torch.Tensor:
    """Reorder rotated rows from neighbours (0, 1), (2, 3) to halves (0, 2), (1, 3) of a head."""
    heads, rotated = _heads(rows, section)
    turned = torch.cat([heads[:, :rotated:2], heads[:, 1:rotated:2]], dim=1)
    return torch.cat([turned, heads[:, rotated:]], dim=1).flatten(0, 1)


def _neighbours(rows: torch.Tensor, section: Mapping[str, Any]) -> torch.Tensor:
    """Reorder rotated rows from halves of a head to neighbours."""
    heads, rotated = _heads(rows, section)
    pairs = torch.stack([heads[:, : rotated // 2], heads[:, rotated // 2 : rotated]], dim=2)
    return torch.cat([pairs.flatten(1, 2), heads[:, rotated:]], dim=1).flatten(0, 1)


def _heads(rows: torch.Tensor, section: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
    """Return rows by head, and the rotated rows of a head."""
    width = section.get("attention_inner_dim") or section["hidden_size"]
    heads = rows.unflatten(0, (-1, width // section["num_heads"]))
    return heads, section.get("rotary_dim") or heads.shape[1]
