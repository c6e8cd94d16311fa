"""Find out within seconds whether Ray listens at an address."""

from __future__ import annotations

import os
import socket

from ray._private import services
from ray._private.authentication.authentication_token_setup import (
    maybe_enable_token_auth_if_token_available,
)
from ray._raylet import (  # type: ignore[attr-defined]  # its stub leaves both out
    GRPC_STATUS_CODE_UNIMPLEMENTED,
    InnerGcsClient,
)
from ray.exceptions import RpcError

from waferstream.core.errors import ClusterJobInitError

_GREETING_S = 5.0
_SILENT_S = 30.0  # of the head of a joined cluster that a run needs
_ANSWER_S = 15.0  # a busy head greets at once, but may take a while to answer a call

_START_ONE = "start it with `ray start --head`, or set runtime.address to 'local'"
_NOT_RAY = "the port is open, but not Ray's (the default is 6379)"

# Client preface and empty SETTINGS frame (RFC 9113, sections 3.4 and 6.5): any gRPC server replies
# with its own SETTINGS, whose type is the fourth byte.
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_SETTINGS_TYPE = 4


def check_address(address: str) -> None:
    """Check that Ray listens at an address; ray.init alone would retry for minutes."""
    where = _latest_instance() if address == "auto" else address
    host, _, port = where.rpartition(":")
    if not host or not port.isdecimal():
        raise ClusterJobInitError(
            "runtime.address must be local, auto, or host:port",
            code="ray-address-malformed",
            where="runtime.address",
            value=where,
        )
    try:
        _greet(host, int(port))
        if address != "auto":
            # ray.init looks for a token in the same way, but only after this request.
            maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
            _ask(where)
    except (OSError, OverflowError) as error:
        raise ClusterJobInitError(
            "no Ray cluster answers",
            code="ray-not-answering",
            where=f"runtime.address: {where}",
            value=error,
            remedy=_START_ONE,
        ) from error


def _latest_instance() -> str:
    """Return the address that ``ray.init`` would choose for ``auto``.

    It looks at RAY_ADDRESS, at running processes and at the file that `ray start` wrote, which
    survives an instance that was killed.
    """
    try:
        found: str = services.get_ray_address_from_environment("auto", temp_dir=None)
    except ConnectionError as error:
        raise ClusterJobInitError(
            "no Ray cluster runs on this host",
            code="ray-not-running",
            where="runtime.address: auto",
            remedy=_START_ONE,
        ) from error
    return found


def _greet(host: str, port: int, timeout_s: float = _GREETING_S) -> None:
    """Raise ConnectionError unless a gRPC server listens there, TimeoutError if none answers."""
    with socket.create_connection((host, port), timeout_s) as connection:
        if os.environ.get("RAY_USE_TLS") == "1":
            return  # the server answers only with Ray's certificates
        connection.sendall(_HTTP2_HELLO)
        reply = connection.recv(9)
    if len(reply) < 4 or reply[3] != _SETTINGS_TYPE:
        raise ConnectionError(_NOT_RAY)


def _ask(where: str) -> None:
    """Request the cluster's id once; ray.init does so up to twenty times.

    Raises:
        ConnectionError: The server does not know the request, so it is not a head of Ray.
        RayError: The server refuses to answer, or does not answer in time.
    """
    try:
        InnerGcsClient.standalone(where, None, round(_ANSWER_S * 1000))
    except RpcError as error:
        if error.rpc_code == GRPC_STATUS_CODE_UNIMPLEMENTED:
            raise ConnectionError(_NOT_RAY) from error
        raise


def answers(address: str) -> bool:
    """Return whether a gRPC server answers there; one that is stopped only seems to listen."""
    host, _, port = address.rpartition(":")
    try:
        _greet(host, int(port), _SILENT_S)
    except (ConnectionError, TimeoutError):
        return False
    except OSError:
        return True
    return True
