"""The management over the network: gRPC with a token, patient while the management restarts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import grpc

from swarmx.links.certificates import read_credentials
from waferstream.core.config_errors import unreadable
from waferstream.core.errors import (
    ApplianceResourceExhausted,
    ApplianceServiceInterrupted,
    ApplianceUnknownError,
    ConfigError,
    WaferStreamError,
)
from waferstream.core.traveling_errors import ERROR_KEY, decode_error
from waferstream.core.units import MIB
from waferstream.host.loopback import is_loopback
from waferstream.management.model.event import Event
from waferstream.management.model.operations import Operation
from waferstream.management.wire.management_pb2 import (  # type: ignore[attr-defined]  # made at import
    Call,
    Chunk,
    Following,
    Wanted,
)
from waferstream.management.wire.service import (
    CHANNEL_OPTIONS,
    DO,
    DOWNLOAD,
    FOLLOW,
    TOKEN_KEY,
    UPLOAD,
    VERSION_KEY,
)
from waferstream.version import VERSION

Result = TypeVar("Result")

PATIENCE_S = 60.0
"""How long a management may be away before a call fails."""

FIRST_PATIENCE_S = 5.0
"""The same before its first answer: the address may be wrong."""

STREAM_S = 3600.0
"""The life of one stream; a follower then opens the next one."""

TRANSFER_S = 600.0
"""How long an upload or a download may take."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_CHUNK_BYTES = MIB


class RemoteClient:
    """A management over the network; any thread may use it.

    Args:
        address: ``host:port`` of gRPC.
        token: Shows who asks.
        certificate: Of the authority of the management; a folder with a certificate of the client,
            too (``waferstream certificates make``); None on loopback.
        timeout_s: How long an operation may take.
        patience_s: How long the management may be away.
        checks_version: Whether the management may refuse another release.
    """

    def __init__(
        self,
        address: str,
        token: str = "",
        certificate: Path | None = None,
        timeout_s: float = 60.0,
        patience_s: float = PATIENCE_S,
        *,
        checks_version: bool = True,
    ) -> None:
        self._address, self._timeout_s, self._patience_s = address, timeout_s, patience_s
        self._channel = channel_to(address, certificate)
        self._has_answered = False
        self._metadata = [
            *([(TOKEN_KEY, f"Bearer {token}")] if token else []),
            *([(VERSION_KEY, VERSION)] if checks_version else []),
        ]

    def do(self, operation: Operation[Result]) -> Result:
        """Do an operation, again where the connection has broken: that changes nothing twice.

        Raises:
            WaferStreamError: What the management has raised, or why it cannot be asked.
        """
        call = Call(operation=type(operation).__name__, json=operation.model_dump_json())
        ask = DO.caller(self._channel)
        answer = self._patiently(
            lambda: ask(call, timeout=self._timeout_s, metadata=self._metadata)
        )
        result: Result = operation.result.validate_json(answer.json)
        return result

    def follow(
        self, workflow: str = "", after_event: int = 0, log_offset: int = 0
    ) -> Iterator[Event | bytes]:
        """Yield events and pieces of the log as they come, until the workflow has ended.

        Without a workflow, events of all come, without end.

        Raises:
            WaferStreamError: What the management has raised, or that it is away for too long.
        """
        ask = FOLLOW.caller(self._channel)
        patience = self._patience()
        while True:
            question = Following(workflow=workflow, after_event=after_event, log_offset=log_offset)
            try:
                for part in ask(question, timeout=STREAM_S, metadata=self._metadata):
                    self._has_answered = True
                    patience = self._patience()
                    if part.WhichOneof("part") == "event":
                        event = Event.model_validate_json(part.event)
                        after_event = event.number
                        yield event
                    else:
                        log_offset += len(part.log)
                        yield part.log
                return
            except grpc.RpcError as error:
                if _code(error) is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    patience.pause(self._error_of(error))

    def upload(self, path: Path) -> str:
        """Send a package; return its digest.

        Raises:
            WaferStreamError: What the management has raised, or why it cannot be asked.
            OSError: The file cannot be read.
        """
        ask = UPLOAD.caller(self._channel)
        answer = self._patiently(
            lambda: ask(_chunks_of(path), timeout=TRANSFER_S, metadata=self._metadata)
        )
        return str(answer.digest)

    def download(self, workflow: str, path: str, offset: int = 0) -> Iterator[bytes]:
        """Yield a file of a run in pieces, from a place on.

        Raises:
            WaferStreamError: What the management has raised, or why it cannot be asked.
        """
        ask = DOWNLOAD.caller(self._channel)
        patience = self._patience()
        while True:
            question = Wanted(workflow=workflow, path=path, offset=offset)
            try:
                for chunk in ask(question, timeout=TRANSFER_S, metadata=self._metadata):
                    offset += len(chunk.content)
                    yield chunk.content
                return
            except grpc.RpcError as error:
                patience.pause(self._error_of(error))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._channel.close()

    def _patience(self) -> _Patience:
        limit_s = self._patience_s if self._has_answered else FIRST_PATIENCE_S
        return _Patience(min(limit_s, self._patience_s))

    def _patiently(self, ask: Callable[[], Any]) -> Any:
        """Ask until the management answers, as long as its absence is no error."""
        patience = self._patience()
        while True:
            try:
                answer = ask()
                self._has_answered = True
                return answer
            except grpc.RpcError as error:
                patience.pause(self._error_of(error))

    def _error_of(self, error: grpc.RpcError) -> WaferStreamError:
        """Return the typed error of a call that has failed."""
        encoded = dict(error.trailing_metadata() or ()).get(ERROR_KEY)
        if encoded is not None:
            return decode_error(encoded)
        match _code(error):
            case grpc.StatusCode.UNAVAILABLE:
                return ApplianceServiceInterrupted(
                    "the management does not answer",
                    code="management-unreachable",
                    where=self._address,
                    value=error.details(),
                    remedy="waferstream management start, or another --mgmt_address",
                )
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return ApplianceServiceInterrupted(
                    "the management has not answered in time",
                    code="management-slow",
                    where=self._address,
                )
            case grpc.StatusCode.RESOURCE_EXHAUSTED:
                return ApplianceResourceExhausted(
                    "the management does not take so much",
                    code="message-too-large",
                    where=self._address,
                    value=error.details(),
                )
        return ApplianceUnknownError(
            "the management has failed", code="management-failed", value=error.details()
        )


class _Patience:
    """Pauses between two attempts, which grow, and end after a time."""

    def __init__(self, limit_s: float) -> None:
        self._end_s = time.monotonic() + limit_s
        self._pause_s = _FIRST_PAUSE_S

    def pause(self, error: WaferStreamError) -> None:
        """Wait before the next attempt, or raise the error of the last one."""
        is_away = error.code == "management-unreachable"
        if not is_away or time.monotonic() + self._pause_s > self._end_s:
            raise error
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def _code(error: grpc.RpcError) -> grpc.StatusCode:
    return error.code()


def _chunks_of(path: Path) -> Iterator[Any]:
    with open(path, "rb") as file:
        while content := file.read(_CHUNK_BYTES):
            yield Chunk(content=content)


def channel_to(address: str, certificate: Path | None) -> grpc.Channel:
    """Return a channel to a management.

    Args:
        address: ``host:port``.
        certificate: Of the authority; a folder that has a certificate and a key of the client, too,
            as ``waferstream certificates make`` writes it; None on loopback.

    Raises:
        ConfigError: Another host needs a certificate, or the files cannot be used.
    """
    if certificate is not None:
        return grpc.secure_channel(address, _credentials(certificate), CHANNEL_OPTIONS)
    host = address.rpartition(":")[0].strip("[]")
    if not is_loopback(host):
        raise ConfigError(
            "a management on another host must be asked with its certificate",
            code="management-without-certificate",
            where=address,
            rule="without TLS, the token could be read on the way",
            remedy="--credentials_path names ca.pem of the management, or a folder with all files",
        )
    return grpc.insecure_channel(address, CHANNEL_OPTIONS)


def _credentials(certificate: Path) -> grpc.ChannelCredentials:
    if certificate.is_dir():
        names = ("ca.pem", "certificate.pem", "key.pem")
        own = read_credentials(*(certificate / name for name in names))
        return grpc.ssl_channel_credentials(own.authority, own.key, own.certificate)
    try:
        return grpc.ssl_channel_credentials(certificate.read_bytes())
    except OSError as error:
        raise unreadable(certificate, error) from error
