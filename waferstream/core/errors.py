"""All errors that a user can meet, as one tree.

    WaferStreamError
    ├── ConfigError                      params.yaml, cluster.yaml or a flag is wrong
    │   └── ProgramOrderError            a call comes at the wrong time; also a RuntimeError
    ├── DataError                        a dataset is missing, truncated, or too short
    │   └── EmptyLoaderError             a loader yields no batch; also a RuntimeError
    ├── CheckError                       a run computes other values than plain PyTorch
    ├── CheckpointError                  a checkpoint cannot be written, read, or matched
    ├── RequestRefused                   a key, its balance or its limits forbid a request
    ├── ApplianceCompilationError        the step cannot be captured or scheduled
    └── ApplianceError                   the cluster failed while it ran
        ├── ClusterJobInitError          the cluster could not be started
        ├── ApplianceResourceExhausted   the model, the batch or the machine is too small
        ├── ApplianceRuntimeServerError  a role died or lost its link
        │   └── WeightsLostError         ... between two jobs, with weights that nobody had read
        ├── ApplianceRuntimeJobTimeoutError  the job ran longer than job_time_sec
        ├── ApplianceDeadlockError       no message arrived within the time limit
        ├── ApplianceCorruptionError     a message arrived damaged
        ├── ApplianceNanError            a loss, gradient or weight is not finite
        │   └── NotFiniteStepError       ... in one step
        ├── ClusterJobCancelledByCsctl   a user has cancelled the job
        ├── ClusterJobScheduleError      the job asks for more than the cluster of its queue has
        ├── ApplianceUnknownError
        ├── ApplianceHealthPollException
        ├── ApplianceTensorDropped
        ├── ApplianceServiceInterrupted
        ├── ApplianceVersionError
        └── ApplianceUserVenvClusterVolumeError

The names under ``Appliance*`` and ``ClusterJob*`` are those of the vendor's client
(cerebras_appliance 2.10, ``errors.py``). Programs raise and catch them, too: their code is
optional. Nothing here raises those whose text says so.

Every error has a *code*, a stable name of the violated rule in kebab case, printed in brackets
after the text (``system-without-micro-batch``). Programs and tests compare codes; texts may change.
Codes of configuration files and flags, whatever the key:

    unknown-key, missing-key, duplicate-key      a key is misspelt, absent, or occurs twice
    unknown-class, missing-class                 a section must name one of several classes
    wrong-type, out-of-range, not-one-of         a value has another type, is too large or small,
                                                 or is none of the allowed words
    not-allowed                                  a value violates another rule
    file-not-readable, file-not-text, file-not-yaml, file-not-a-mapping
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, Self

_DIGIT = re.compile(r"\d")


class WaferStreamError(Exception):
    """Error with fields: what failed, where, the value, the rule it violates, and the remedy.

    ``code`` names the rule for tests and programs. All fields survive pickling between processes,
    unlike those of an exception that is rebuilt from ``args``.
    """

    def __init__(
        self,
        what: str,
        *,
        code: str,
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
        lines = [f"{self.what} [{self.code}]"]
        for label, text in (
            ("where", self.where),
            ("value", self.value),
            ("rule", self.rule),
            ("remedy", self.remedy),
        ):
            if text is not None:
                lines.append(f"  {label}: {text}")
        return "\n".join(lines)

    def fields(self) -> dict[str, str | None]:
        """Return the kind of the error and all fields as plain data."""
        _, what, fields = _fields_of(self)
        return {"kind": type(self).__name__, "what": what, **fields}

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, _fields_of(self)


def _fields_of(error: WaferStreamError) -> tuple[type[WaferStreamError], str, dict[str, Any]]:
    """Return the class and the arguments of an error."""
    names = ("code", "where", "value", "rule", "remedy")
    return type(error), error.what, {name: getattr(error, name) for name in names}


def _rebuild(kind: type[WaferStreamError], what: str, fields: dict[str, Any]) -> WaferStreamError:
    return kind(what, **fields)


class ConfigError(WaferStreamError):
    """A key or value of params.yaml, cluster.yaml or the command line is wrong."""


class ProgramOrderError(ConfigError, RuntimeError):
    """A call comes at the wrong time. The vendor's client raises a RuntimeError."""


class DataError(WaferStreamError):
    """A dataset is missing, empty, truncated, malformed, or shorter than one batch."""


class EmptyLoaderError(DataError, RuntimeError):
    """A loader yields no batch. The vendor's client raises a RuntimeError."""


class CheckError(WaferStreamError):
    """A run computes other values than a plain PyTorch loop."""


class CheckpointError(WaferStreamError):
    """A checkpoint cannot be written or read, or does not match the model."""


class RequestRefused(WaferStreamError):
    """A service does not take a request: of this key, at this time, or at this price."""

    retry_after_s: float | None = None
    """After how many seconds it may take it; None if time alone does not help."""

    def until(self, retry_after_s: float) -> Self:
        """Return the error with the time after which the request may be repeated."""
        self.retry_after_s = retry_after_s
        return self


class _ClientError(WaferStreamError):
    """An error of the vendor's client, which a user's program can raise with a text alone."""

    def __init__(self, what: str = "", *, code: str = "raised-by-program", **fields: Any) -> None:
        super().__init__(what, code=code, **fields)


class ApplianceCompilationError(_ClientError):
    """The training step cannot be captured, or contains an op that has no kernel."""


class ApplianceError(_ClientError):
    """The cluster failed while it started or ran."""


class ClusterJobInitError(ApplianceError):
    """The cluster could not be started: its address does not answer, it has too few CPUs, ..."""


class ApplianceResourceExhausted(ApplianceError):
    """The model, the batch or a buffer does not fit the stated machine."""


class ApplianceRuntimeServerError(ApplianceError):
    """A role of the cluster died or lost its link while a job ran."""


class WeightsLostError(ApplianceRuntimeServerError):
    """Trained weights that no job had reported lost could not be read; the model has older ones."""


class ApplianceDeadlockError(ApplianceError):
    """A role waited longer than the time limit for a message (the vendor calls this a stall)."""


class ApplianceNanError(ApplianceError):
    """A loss, a gradient or a weight is NaN or infinite."""


class NotFiniteStepError(ApplianceNanError):
    """A value of one step is NaN or infinite.

    Args:
        what: What is not finite.
        step: The step, 0 if a program does not say it.
        fields: Those of every error.
    """

    def __init__(self, what: str = "", *, step: int = 0, **fields: Any) -> None:
        super().__init__(what, **fields)
        self.step = step

    def __reduce__(self) -> tuple[object, ...]:
        kind, what, fields = _fields_of(self)
        return _rebuild, (kind, what, {**fields, "step": self.step})


class ApplianceRuntimeJobTimeoutError(ApplianceError):
    """The job ran longer than ``job_time_sec``."""


class ApplianceUnknownError(ApplianceError):
    """The cluster or the management failed for a reason that its client cannot tell."""


class ApplianceCorruptionError(ApplianceError):
    """A message or its payload arrived damaged."""


class ApplianceHealthPollException(ApplianceError):
    """A health check failed; not raised here, where a dead role is an own error."""


class ApplianceTensorDropped(ApplianceError):
    """A tensor of a step was dropped; not raised here."""


class ApplianceServiceInterrupted(ApplianceError):
    """The management, or the store behind it, does not answer."""


class ApplianceVersionError(ApplianceError):
    """Client and server have different versions."""


class ApplianceUserVenvClusterVolumeError(ApplianceError):
    """The user's environment could not be copied to the cluster; not raised here."""


class ClusterJobCancelledByCsctl(ApplianceError):
    """The job was cancelled from outside, by ``waferstream ctl cancel``."""


class ClusterJobScheduleError(ApplianceError):
    """The job cannot be scheduled: it asks for more than the cluster of its queue has."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most similar to ``word``, or None if none is similar.

    Of equally similar words, one that differs in digits alone comes first: gpt3 for gpt5.
    """
    found = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    found.sort(key=lambda each: _DIGIT.sub("0", each) != _DIGIT.sub("0", word))
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return the remedy for an unknown word, or None if no known word is similar."""
    guess = nearest(word, known)
    return f"did you mean {guess!r}?" if guess else None
