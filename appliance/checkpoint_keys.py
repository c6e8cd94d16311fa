"""Whether a checkpoint holds the tensors of a model."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from wsc.core.errors import CheckpointError

_SHOWN = 5

log = logging.getLogger("waferstream")


def check_keys(expected: Iterable[str], found: Iterable[str], *, strict: bool, where: str) -> None:
    """Compare a model's keys with those of the checkpoint ``where``, each in its own order.

    If they differ: CheckpointError if ``strict``, else a warning.
    """
    ours, theirs = dict.fromkeys(expected), dict.fromkeys(found)
    missing = [key for key in ours if key not in theirs]
    unexpected = [key for key in theirs if key not in ours]
    if not missing and not unexpected:
        return
    difference = "; ".join(_described(missing, unexpected))
    if strict:
        raise CheckpointError(
            "the checkpoint does not match the model",
            where=where,
            value=difference,
            remedy="load a checkpoint of this model, or disable_strict_checkpoint_loading",
        )
    log.warning("The checkpoint %s does not match the model: %s", where, difference)


def _described(missing: Sequence[str], unexpected: Sequence[str]) -> Iterator[str]:
    for word, keys in (("missing", missing), ("unexpected", unexpected)):
        if keys:
            more = f", ... ({len(keys)} in all)" if len(keys) > _SHOWN else ""
            yield f"{word}: {', '.join(keys[:_SHOWN])}{more}"
