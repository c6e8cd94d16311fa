"""The connection of a program to its cluster: calls with deadlines, and errors as raised."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc

from appliance.remote.access import SERVER, Access
from appliance.remote.commands import Description
from appliance.remote.pickles import pickled, result_from
from appliance.remote.wire import (
    OPTIONS,
    SERVICE,
    SESSION,
    TOKEN,
    VERSION_KEY,
    VERSIONS,
    Parcel,
    file_frames,
    received,
    write_frames,
)
from waferstream.core.config import validate
from waferstream.core.errors import (
    ApplianceDeadlockError,
    ApplianceRuntimeServerError,
    ClusterJobInitError,
    WaferStreamError,
)
from waferstream.core.roles.role import Command, Result
from waferstream.core.traveling_errors import ERROR_KEY, decode_error

_CALL_S = 15.0
_TRANSFER_S = 3600.0


def described(access: Access) -> Description:
    """Return what a server is; see ``Connection.describe``."""
    connection = Connection(access)
    try:
        return connection.describe()
    finally:
        connection.close()


class Connection:
    """A program's connection. It may be used by several threads.

    Args:
        access: The server, and the right to use it.
    """

    def __init__(self, access: Access) -> None:
        self.address = access.address
        trusted = grpc.ssl_channel_credentials(access.certificate.encode())
        options = (*OPTIONS, ("grpc.ssl_target_name_override", SERVER))
        self._channel = grpc.secure_channel(access.address, trusted, options)
        self._metadata = (
            (TOKEN, access.token),
            (SESSION, secrets.token_hex(16)),
            (VERSION_KEY, VERSIONS),
        )

    def describe(self) -> Description:
        """Return what the server is.

        Raises:
            ClusterJobInitError: Nobody answers at the address.
            WaferStreamError: The server refuses this program.
        """
        try:
            return validate(Description, self._ask("Describe").head, self.address)
        except ApplianceRuntimeServerError as error:
            raise ClusterJobInitError(
                "the cluster must answer at its address",
                code="cluster-not-found",
                where="mgmt_address",
                value=self.address,
                rule=error.value,
                remedy="start one there: waferstream cluster serve",
            ) from error

    def beat(self) -> int:
        """Say that the program is there; return the newest step that has begun."""
        return int(self._ask("Beat").head["newest_step"])

    def do(self, command: Command[Result], on_call: Callable[[grpc.Call], None]) -> Result:
        """Let the cluster do a command; return its result.

        An interrupt of the caller interrupts the command, too.

        Args:
            command: The command.
            on_call: Gets the call, so that another thread can cancel it.
        """
        limit_s = None if command.limit_s is None else command.limit_s + _CALL_S
        frames = Parcel(buffers=pickled(command)).frames()
        with self._calling("Do", frames, limit_s) as answer:
            on_call(answer)
            result: Result = result_from(received(answer).buffers)
        return result

    def upload(self, path: Path) -> None:
        """Copy a file to the folder of the program at the cluster."""

        def frames() -> Iterator[bytes]:
            yield json.dumps({"name": path.name}).encode()
            yield from file_frames(path)

        with self._calling("Upload", frames(), _TRANSFER_S) as answer:
            received(answer)

    def download(self, path: Path) -> None:
        """Move a file of that name from there to a path."""
        with self._calling("Download", Parcel({"name": path.name}).frames(), _TRANSFER_S) as answer:
            write_frames(path, answer)

    def leave(self) -> None:
        """Say that the program has ended, and close the connection."""
        with suppress(WaferStreamError, RuntimeError):  # its lease ends without it
            self._ask("Leave")
        self.close()

    def close(self) -> None:
        """Close the connection; the cluster stays for its lease."""
        self._channel.close()

    def _ask(self, method: str) -> Parcel:
        with self._calling(method, Parcel().frames(), _CALL_S) as answer:
            return received(answer)

    @contextmanager
    def _calling(
        self, method: str, frames: Iterator[bytes], limit_s: float | None
    ) -> Iterator[Any]:
        """Call a method; yield the frames of its answer. Leaving the block early cancels it."""
        stub = self._channel.stream_stream(f"/{SERVICE}/{method}")
        call = stub(frames, timeout=limit_s, metadata=self._metadata)
        try:
            yield call
        except grpc.RpcError as error:
            raise _error_of(error, method) from None
        finally:
            call.cancel()


def _error_of(failed: Any, method: str) -> WaferStreamError:
    """Return the error of the other side, or that of the way there."""
    encoded = dict(failed.trailing_metadata() or ()).get(ERROR_KEY)
    if encoded is not None:
        return decode_error(encoded)
    if failed.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return ApplianceDeadlockError(
            "the cluster has not answered in time", code="call-timeout", where=method
        )
    return ApplianceRuntimeServerError(
        "the connection to the cluster is lost",
        code="connection-lost",
        where=method,
        value=failed.details(),
        remedy="make a new backend and continue from a checkpoint",
    )
