"""Parameters whose values lie in the same memory before a model is compiled.

``b.data = a.data`` gives two parameters one memory. A plain loop writes both updates to it, one
after the other. MemoryX has a tensor for each parameter: it holds such a pair as one weight, where
the two updates amount to one, and everything else that overlaps is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import nn

from cstorch.remote.tensor import RemoteParameter
from waferstream.compiler.capture.parameter_hooks import hooks_of
from waferstream.compiler.storages import have_common_elements, in_memory
from waferstream.core.errors import ConfigError

_REMEDY = "tie them as PyTorch does (b.weight = a.weight), or clone() one before cstorch.compile"


@dataclass(frozen=True)
class Tie:
    """A parameter of a module, and the one of the same memory that replaces it."""

    module: nn.Module
    attribute: str
    old: nn.Parameter
    new: nn.Parameter

    def undo(self) -> None:
        """Put the parameter back: an ordinary one, whose memory has the values of the other."""
        if isinstance(self.old, RemoteParameter):
            del self.old._remote
            object.__setattr__(self.old, "__class__", nn.Parameter)
        self.module._parameters[self.attribute] = self.old


def tie_shared(model: nn.Module) -> list[Tie]:
    """Tie parameters that are the same memory.

    Returns:
        The places whose parameters have given way to others.

    Raises:
        ConfigError: Parameters, or a parameter and a buffer, overlap in another way.
    """
    parameters = dict(model.named_parameters())
    first_of: dict[torch.Tensor, nn.Parameter] = {}
    for name, other in _overlapping(parameters, parameters):
        first, second = parameters[name], parameters[other]
        if not _is_same(first, second):
            raise _refusal("parameters", name, other)
        first_of[second] = first_of.get(first, first)
    for name, other in _overlapping(parameters, dict(model.named_buffers())):
        raise _refusal("a parameter and a buffer", name, other)
    ties = [
        Tie(module, attribute, parameter, first_of[parameter])
        for module in model.modules()
        for attribute, parameter in module._parameters.items()
        if parameter is not None and parameter in first_of
    ]
    for tie in ties:
        tie.module._parameters[tie.attribute] = tie.new
    return ties


def _overlapping(
    parameters: Mapping[str, torch.Tensor], others: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, str]]:
    """Yield the names of tensors that have memory in common: a parameter, and another tensor."""
    found: dict[int, list[tuple[str, torch.Tensor]]] = {}
    for name, tensor in {**parameters, **others}.items():
        if (plain := in_memory(tensor)) is not None:
            found.setdefault(plain.untyped_storage().data_ptr(), []).append((name, plain))
    for sharing in found.values():
        for (name, first), (other, second) in combinations(sharing, 2):
            if name in parameters and other in others and have_common_elements(first, second):
                yield name, other


def _is_same(first: nn.Parameter, second: nn.Parameter) -> bool:
    """Return whether two parameters of one storage may be one weight."""
    is_plain = not any(hooks for p in (first, second) for hooks in hooks_of(p))
    layouts = [(p.shape, p.stride(), p.storage_offset(), p.requires_grad) for p in (first, second)]
    return is_plain and layouts[0] == layouts[1]


def _refusal(what: str, *names: str) -> ConfigError:
    return ConfigError(
        f"{what} share memory",
        code="shared-storage",
        where=" and ".join(names),
        rule="MemoryX holds a tensor for each parameter; one that is a view of another would not "
        "follow its updates",
        remedy=_REMEDY,
    )
