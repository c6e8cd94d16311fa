"""The status that a server answers for each error: in gRPC, and from that in HTTP.

The names are those of gRPC (grpc/grpc, doc/statuscodes.md), the numbers those that google.rpc.Code
states for them, but for FAILED_PRECONDITION, which is a conflict with what is there. The class of
an error decides; where it holds several cases, the code does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from waferstream.core import errors

_HTTP: Mapping[str, int] = {
    "INVALID_ARGUMENT": 400, "OUT_OF_RANGE": 400, "PERMISSION_DENIED": 403, "NOT_FOUND": 404,
    "ABORTED": 409, "ALREADY_EXISTS": 409, "FAILED_PRECONDITION": 409, "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499, "DATA_LOSS": 500, "INTERNAL": 500, "UNKNOWN": 500, "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504,
    "UNAUTHENTICATED": 401,
}  # fmt: skip

OF_CLASS: Mapping[type[errors.WaferStreamError], str] = {
    errors.WaferStreamError: "FAILED_PRECONDITION",  # itself: a call at the wrong time
    errors.ConfigError: "INVALID_ARGUMENT",
    errors.ProgramOrderError: "FAILED_PRECONDITION",
    errors.DataError: "INVALID_ARGUMENT",
    errors.CheckError: "INTERNAL",
    errors.CheckpointError: "FAILED_PRECONDITION",
    errors.RequestRefused: "UNAVAILABLE",
    errors.ApplianceCompilationError: "INVALID_ARGUMENT",
    errors.ApplianceError: "INTERNAL",
    errors.ClusterJobInitError: "UNAVAILABLE",
    errors.ApplianceResourceExhausted: "RESOURCE_EXHAUSTED",
    errors.ApplianceRuntimeServerError: "UNAVAILABLE",
    errors.WeightsLostError: "DATA_LOSS",
    errors.ApplianceRuntimeJobTimeoutError: "DEADLINE_EXCEEDED",
    errors.ApplianceDeadlockError: "DEADLINE_EXCEEDED",
    errors.ApplianceCorruptionError: "DATA_LOSS",
    errors.ApplianceNanError: "OUT_OF_RANGE",
    errors.ClusterJobCancelledByCsctl: "CANCELLED",
    errors.ClusterJobScheduleError: "RESOURCE_EXHAUSTED",
    errors.ApplianceUnknownError: "UNKNOWN",
    errors.ApplianceHealthPollException: "UNAVAILABLE",
    errors.ApplianceTensorDropped: "DATA_LOSS",
    errors.ApplianceServiceInterrupted: "UNAVAILABLE",
    errors.ApplianceVersionError: "FAILED_PRECONDITION",
    errors.ApplianceUserVenvClusterVolumeError: "INTERNAL",
}
"""The gRPC name by class; a class without a row has that of its base."""

OF_CODE: Mapping[str, str] = {
    "unknown-job": "NOT_FOUND", "data-file-not-found": "NOT_FOUND", "data-file-gone": "NOT_FOUND",
    "no-such-tensor": "NOT_FOUND", "file-exists": "ALREADY_EXISTS",
    "model-dir-in-use": "FAILED_PRECONDITION", "nothing-to-check": "INVALID_ARGUMENT",
    "checkpoint-damaged": "DATA_LOSS", "tensor-damaged": "DATA_LOSS",
    "feature-not-here": "UNIMPLEMENTED", "vendor-name-missing": "UNIMPLEMENTED",
    "peer-not-authentic": "PERMISSION_DENIED", "peer-refuses": "PERMISSION_DENIED",
    "job-aborted": "ABORTED", "run-failed": "INTERNAL", "run-not-completed": "INTERNAL",
    "key-missing": "UNAUTHENTICATED", "key-unknown": "UNAUTHENTICATED",
    "key-revoked": "PERMISSION_DENIED", "host-not-loopback": "PERMISSION_DENIED",
    "tier-not-reserved": "INVALID_ARGUMENT",
    "token-missing": "UNAUTHENTICATED", "token-unknown": "UNAUTHENTICATED",
    "role-forbids": "PERMISSION_DENIED", "not-your-workflow": "PERMISSION_DENIED",
    "priority-forbidden": "PERMISSION_DENIED", "session-forbidden": "PERMISSION_DENIED",
    "management-slow": "DEADLINE_EXCEEDED", "unknown-path": "NOT_FOUND",
    "too-many-followed": "RESOURCE_EXHAUSTED", "package-too-large": "RESOURCE_EXHAUSTED",
    "rate-limit-exceeded": "RESOURCE_EXHAUSTED", "balance-empty": "RESOURCE_EXHAUSTED",
    "disk-quota-exceeded": "RESOURCE_EXHAUSTED",
}  # fmt: skip
"""The gRPC name by code, where it is not that of the class."""

_HTTP_OF_CODE: Mapping[str, int] = {
    "balance-empty": 402, "deadline-passed": 408, "package-too-large": 413, "body-too-large": 413,
    "body-of-other-type": 415,
}  # fmt: skip
"""The status in HTTP by code, where gRPC has no name for the case."""


class Status(NamedTuple):
    """How an error is answered."""

    http: int
    grpc: str


def status_of(kind: type[errors.WaferStreamError], code: str) -> Status:
    """Return the status of an error of a class with a code."""
    of_class = next(OF_CLASS[each] for each in kind.__mro__ if each in OF_CLASS)
    name = OF_CODE.get(code, of_class)
    return Status(_HTTP_OF_CODE.get(code, _HTTP[name]), name)
