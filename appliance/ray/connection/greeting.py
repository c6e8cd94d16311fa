"""Whether anything like Ray listens at an address, asked without importing Ray."""

from __future__ import annotations

import os
import socket

from waferstream.core.errors import ClusterJobInitError

START_ONE = "start it with `ray start --head`, or set runtime.address to 'local'"
NOT_RAY = "the port is open, but not Ray's (the default is 6379)"
VARIABLE = "RAY_ADDRESS"
"""The environment variable from which Ray takes the address that ``auto`` stands for."""

_GREETING_S = 5.0

# Client preface and empty SETTINGS frame (RFC 9113, sections 3.4 and 6.5): any gRPC server replies
# with its own SETTINGS, whose type is the fourth byte.
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_SETTINGS_TYPE = 4


def check_greeting(address: str) -> None:
    """Check that a server of gRPC listens at an address.

    Args:
        address: ``host:port``, or ``auto``, which is checked where a variable says what it is.

    Raises:
        ClusterJobInitError: The address is malformed, or nothing like Ray answers there.
    """
    where = os.environ.get(VARIABLE, "auto") if address == "auto" else address
    if where in ("auto", "local"):
        return
    host, port = host_and_port(where)
    try:
        greet(host, port)
    except (OSError, OverflowError) as error:
        raise not_answering(address, where, error) from error


def host_and_port(where: str) -> tuple[str, int]:
    """Split an address; ClusterJobInitError if it is none."""
    host, _, port = where.rpartition(":")
    if not host or not port.isdecimal():
        raise ClusterJobInitError(
            "runtime.address must be local, auto, or host:port",
            code="ray-address-malformed",
            where="runtime.address",
            value=where,
        )
    return host, int(port)


def not_answering(address: str, where: str, error: Exception) -> ClusterJobInitError:
    """Return the error for an address, auto or what it stands for, where Ray does not answer."""
    is_variable = address == "auto" and os.environ.get(VARIABLE) == where
    return ClusterJobInitError(
        "no Ray cluster answers",
        code="ray-not-answering",
        where=f"runtime.address: {address} ({VARIABLE}={where})"
        if is_variable
        else f"runtime.address: {where}",
        value=error,
        remedy=f"{START_ONE}, or unset {VARIABLE}" if is_variable else START_ONE,
    )


def greet(host: str, port: int, timeout_s: float = _GREETING_S) -> None:
    """Raise ConnectionError unless a gRPC server listens there, TimeoutError if none answers."""
    with socket.create_connection((host, port), timeout_s) as connection:
        if os.environ.get("RAY_USE_TLS") == "1":
            return  # the server answers only with Ray's certificates
        connection.sendall(_HTTP2_HELLO)
        reply = connection.recv(9)
    if len(reply) < 4 or reply[3] != _SETTINGS_TYPE:
        raise ConnectionError(NOT_RAY)
