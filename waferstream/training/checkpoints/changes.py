"""Differences between a run and the one that wrote a checkpoint; nothing here needs torch."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waferstream.core.errors import CheckpointError

STATE = "configuration"
"""The state of a checkpoint that has the record of its run."""

_NUM_SHOWN = 8  # differences in a line
_ABSENT = "nothing"


@dataclass(frozen=True)
class Change:
    """A key on which two runs differ, with the values of the run before and of this one."""

    key: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.key}: {_text(self.now)} (was {_text(self.before)})"


def changes_of(
    before: Mapping[str, Any], now: Mapping[str, Any], keys: Collection[str]
) -> list[Change]:
    """Return the keys, in their order, on which two records differ."""
    return [
        Change(key, before.get(key, _ABSENT), now.get(key, _ABSENT))
        for key in sorted(keys)
        if before.get(key, _ABSENT) != now.get(key, _ABSENT)
    ]


def of_another_run(path: Path, changes: Collection[Change]) -> CheckpointError:
    """Return the error for a checkpoint of a run that differs in what must be the same."""
    return CheckpointError(
        "the checkpoint is of a run on another model or other data",
        code="run-changed",
        where=str(path),
        value=listed(changes),
        rule="a run goes on with the model and the data that it began with",
        remedy="--allow_changes goes on; a model_dir of its own begins anew; "
        "--load_checkpoint_states=model takes the weights alone",
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def listed(changes: Collection[Change]) -> str:
    """Return the first differences in words."""
    shown = [str(change) for change in changes][:_NUM_SHOWN]
    more = f"; ... ({len(changes)} in total)" if len(changes) > len(shown) else ""
    return "; ".join(shown) + more
