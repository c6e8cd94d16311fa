"""What failed, in the words of this project instead of Ray's."""

from __future__ import annotations

from ray.exceptions import RayActorError, RayError, RayTaskError

from wsc.core.errors import (
    ApplianceDeadlockError,
    ApplianceRuntimeServerError,
    WaferStreamError,
)

_SYMPTOMS = (ApplianceRuntimeServerError, ApplianceDeadlockError)


def is_symptom(error: RayError) -> bool:
    """Whether a role failed because another did: it lost its link to it, or waited in vain."""
    return isinstance(error, RayTaskError) and isinstance(error.cause, _SYMPTOMS)


def explained(role: str, error: RayError, log_path: str | None = None) -> WaferStreamError:
    """The error to raise for what Ray reports of a role: its own, if it is one of ours."""
    where = role if log_path is None else f"{role}, log: {log_path}"
    if isinstance(error, RayTaskError):
        if isinstance(error.cause, WaferStreamError):
            return error.cause
        return ApplianceRuntimeServerError(f"{role} failed", where=where, value=repr(error.cause))
    if isinstance(error, RayActorError):
        return ApplianceRuntimeServerError(
            f"{role} died",
            where=where,
            value=_reason(error),
            rule="every role lives as long as the cluster",
            remedy="the end of its log may say why; memory is the usual reason",
        )
    return ApplianceRuntimeServerError(f"{role} cannot be reached", where=where, value=error)


def _reason(error: RayActorError) -> str:
    """The first sentence of Ray's last line, or all of it if the actor could not be built."""
    text = str(error)
    if error.actor_init_failed:
        return text
    return text.splitlines()[-1].partition(" Some common causes")[0]
