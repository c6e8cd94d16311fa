"""Masks in the user's process: fetched from MemoryX, or given by the program."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from cstorch.remote.tensor import RemoteParameter
from memoryx.sparsity.mask import mask_of, mask_words
from waferstream.core.errors import ConfigError, WaferStreamError


class MaskView:
    """The masks of the parameters of one algorithm."""

    def __init__(self) -> None:
        self._given: dict[torch.Tensor, torch.Tensor] = {}  # words that were not sent
        self._first: set[torch.Tensor] = set()  # those of them that no checkpoint may replace
        self.is_in_memoryx = False
        """Whether MemoryX holds masks of these parameters."""

    def put(self, parameter: torch.Tensor, words: torch.Tensor, *, is_first: bool = False) -> None:
        """Take a mask, as words, that is sent before the next step.

        The mask of a checkpoint replaces one that ``is_first``.
        """
        self._given[parameter] = words
        if is_first:
            self._first.add(parameter)
        else:
            self._first.discard(parameter)

    def give_way(self) -> None:
        """Forget first masks: a checkpoint has had others."""
        for parameter in self._first:
            self._given.pop(parameter, None)
        self._first.clear()

    def take(self) -> dict[str, torch.Tensor]:
        """Return the masks that have to be sent, as words by the names of their parameters."""
        given, self._given = self._given, {}
        self._first.clear()
        return {_remote_name(parameter): words for parameter, words in given.items()}

    def mask(self, parameter: torch.Tensor) -> torch.Tensor:
        """Return the mask of a parameter.

        Raises:
            WaferStreamError: Training has not begun, so there is none.
        """
        shape = tuple(parameter.shape)
        if parameter in self._given:
            return mask_of(self._given[parameter].numpy(), shape)
        if not self.is_in_memoryx or not isinstance(parameter, RemoteParameter):
            raise WaferStreamError(
                "a mask was read before the first step of training",
                code="mask-before-training",
                value=f"a parameter of shape {shape}",
                rule="MemoryX makes the masks when training begins",
            )
        holder = parameter._remote.holder
        holder.settle()
        return mask_of(holder.fetch(parameter._remote.name, "sparsity"), shape)


def words_of(mask: Any, shape: tuple[int, ...], name: str) -> torch.Tensor:
    """Return a mask that the user's program gives as words.

    Raises:
        ConfigError: It is no tensor of the parameter's shape.
    """
    if not isinstance(mask, torch.Tensor) or tuple(mask.shape) != shape:
        raise ConfigError(
            "a mask must have the shape of its parameter",
            code="mask-shape-mismatch",
            where=name,
            value=tuple(mask.shape) if isinstance(mask, torch.Tensor) else type(mask).__name__,
            rule=f"shape {shape}, {prod(shape)} elements",
        )
    return mask_words(mask.detach().cpu().bool())


def _remote_name(parameter: torch.Tensor) -> str:
    assert isinstance(parameter, RemoteParameter), "masks are sent to a cluster that has the model"
    return parameter._remote.name
