"""The keys of a checkpoint against those of a model."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence

from waferstream.core.errors import CheckpointError

_NUM_SHOWN = 5  # keys of each kind in an error

log = logging.getLogger("waferstream")


def check_keys(
    expected: Iterable[str],
    found: Iterable[str],
    *,
    optional: Collection[str] = (),
    strict: bool,
    where: str,
) -> None:
    """Compare a model's keys with those of a checkpoint; if they differ, warn.

    Args:
        expected: Keys of the model.
        found: Keys of the checkpoint.
        optional: Keys that the checkpoint may have or not.
        strict: Raise an error instead of the warning.
        where: The checkpoint, for the message.

    Raises:
        CheckpointError: The keys differ, and ``strict`` is set.
    """
    ours, theirs = dict.fromkeys(expected), dict.fromkeys(found)
    missing = [key for key in ours if key not in theirs]
    unexpected = [key for key in theirs if key not in ours and key not in optional]
    if not missing and not unexpected:
        return
    difference = "; ".join(_described(missing, unexpected))
    if strict:
        raise CheckpointError(
            "the checkpoint does not match the model",
            code="checkpoint-keys-mismatch",
            where=where,
            value=difference,
            remedy="load a checkpoint of this model, or disable_strict_checkpoint_loading",
        )
    log.warning("The checkpoint %s does not match the model: %s", where, difference)


def _described(missing: Sequence[str], unexpected: Sequence[str]) -> Iterator[str]:
    for word, keys in (("missing", missing), ("unexpected", unexpected)):
        if keys:
            more = f", ... ({len(keys)} in total)" if len(keys) > _NUM_SHOWN else ""
            yield f"{word}: {', '.join(keys[:_NUM_SHOWN])}{more}"
