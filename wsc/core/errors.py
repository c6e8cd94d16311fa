"""Every error a user can meet, as one tree.

    WaferStreamError
    ├── ConfigError                      params.yaml, cluster.yaml or a flag is wrong
    ├── DataError                        a dataset is missing, truncated, or too short
    ├── CheckpointError                  a checkpoint cannot be written, read, or matched
    ├── ApplianceCompilationError        the step cannot be captured or scheduled
    └── ApplianceError                   the cluster failed while it ran
        ├── ClusterJobInitError          it could not be started
        ├── ApplianceResourceExhausted   the model, the batch or the machine is too small
        ├── ApplianceRuntimeServerError  a role died or lost its link
        ├── ApplianceDeadlockError       nothing moved for longer than the time limit
        └── ApplianceNanError            a loss, gradient or weight is not finite

The names under ``Appliance*`` are those of the vendor's client (cluster_interface.md, section 4.9).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class WaferStreamError(Exception):
    """Report what failed, where, with which value, against which rule, and what to do.

    Only ``what`` is required. ``code`` identifies the raise site for tests and programs; texts may
    change, codes do not. Survives pickling between processes, unlike an exception that rebuilds
    itself from ``args``.
    """

    def __init__(
        self,
        what: str,
        *,
        code: str = "",
        where: str | None = None,
        value: object = None,
        rule: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.code = code
        self.where = where
        self.value = None if value is None else str(value)
        self.rule = rule
        self.remedy = remedy

    def __str__(self) -> str:
        lines = [f"{self.what} [{self.code}]" if self.code else self.what]
        for label, text in (
            ("where", self.where),
            ("value", self.value),
            ("rule", self.rule),
            ("remedy", self.remedy),
        ):
            if text is not None:
                lines.append(f"  {label}: {text}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        fields = {
            name: getattr(self, name) for name in ("code", "where", "value", "rule", "remedy")
        }
        return _rebuild, (type(self), self.what, fields)


def _rebuild(kind: type[WaferStreamError], what: str, fields: dict[str, Any]) -> WaferStreamError:
    return kind(what, **fields)


class ConfigError(WaferStreamError):
    """A key or value of params.yaml, cluster.yaml or the command line is wrong."""


class DataError(WaferStreamError):
    """A dataset is missing, empty, truncated, not what it claims, or shorter than one batch."""


class CheckpointError(WaferStreamError):
    """A checkpoint cannot be written or read, or does not match the model."""


class ApplianceCompilationError(WaferStreamError):
    """The training step cannot be captured, or holds an op that has no kernel."""


class ApplianceError(WaferStreamError):
    """The cluster failed while it started or ran."""


class ClusterJobInitError(ApplianceError):
    """The cluster could not be started: an address that does not answer, too few cores, ..."""


class ApplianceResourceExhausted(ApplianceError):
    """The model, the batch or a buffer does not fit the stated machine."""


class ApplianceRuntimeServerError(ApplianceError):
    """A role of the cluster died or lost its link while a job ran."""


class ApplianceDeadlockError(ApplianceError):
    """A role waited longer than the time limit for a message (the vendor calls this a stall)."""


class ApplianceNanError(ApplianceError):
    """A loss, a gradient or a weight is NaN or infinite."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like ``word``, or None when none comes near."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The remedy for a word that is not known, or None when none of the known ones comes near."""
    guess = nearest(word, known)
    return f"did you mean {guess!r}?" if guess else None
