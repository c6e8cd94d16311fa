"""What is taken from a checkpoint: which states, and whether its tensors fit the model."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from wsc.core.errors import CheckpointError, ConfigError, nearest

STATES = (
    "model",
    "optimizer",
    "schedulers",
    "grad_scaler",
    "sparsity",
    "dataloader",
    "global_step",
)
"""The states of a checkpoint (cluster_interface.md, section 3.9)."""

_ALIASES = {"lr_scheduler": "schedulers"}
_SHOWN = 5

logger = logging.getLogger(__name__)


def selected_states(text: str) -> frozenset[str]:
    """The states that ``--load_checkpoint_states`` names: ``all``, or a list with commas.

    ``model`` alone means weights only: the optimizer starts afresh, at step 0.
    """
    words = [word.strip() for word in text.split(",")]
    if words == ["all"]:
        return frozenset(STATES)
    states = [_ALIASES.get(word, word) for word in words]
    for state in states:
        if state not in STATES:
            guess = nearest(state, STATES)
            raise ConfigError(
                f"a checkpoint has no state {state!r}",
                where="load_checkpoint_states",
                value=text,
                rule=f"all, or some of {', '.join(STATES)} with commas between",
                remedy=f"did you mean {guess!r}?" if guess else None,
            )
    return frozenset(states)


@dataclass(frozen=True)
class KeyMatch:
    """Keys that model and checkpoint share, and those that only one of them has."""

    common: tuple[str, ...]
    missing: tuple[str, ...]  # the model's, not in the checkpoint
    unexpected: tuple[str, ...]  # the checkpoint's, not in the model


def match_keys(
    expected: Iterable[str], found: Iterable[str], *, strict: bool, where: str
) -> KeyMatch:
    """Compare a model's keys with a checkpoint's, both in their own order.

    ``where`` names the checkpoint. If they differ: CheckpointError if ``strict``, else a warning.
    """
    ours, theirs = dict.fromkeys(expected), dict.fromkeys(found)
    match = KeyMatch(
        common=tuple(key for key in ours if key in theirs),
        missing=tuple(key for key in ours if key not in theirs),
        unexpected=tuple(key for key in theirs if key not in ours),
    )
    if match.missing or match.unexpected:
        difference = "; ".join(_describe(match))
        if strict:
            raise CheckpointError(
                "the checkpoint does not match the model",
                where=where,
                value=difference,
                remedy="load a checkpoint of this model, or disable_strict_checkpoint_loading",
            )
        logger.warning("The checkpoint %s does not match the model: %s", where, difference)
    return match


def _describe(match: KeyMatch) -> Iterator[str]:
    for word, keys in (("missing", match.missing), ("unexpected", match.unexpected)):
        if keys:
            more = f", ... ({len(keys)} in all)" if len(keys) > _SHOWN else ""
            yield f"{word}: {', '.join(keys[:_SHOWN])}{more}"
