"""Coming into contact with Ray, quickly or with an error that says why not."""

from __future__ import annotations

import logging
import os
import socket

import ray
from ray._private import services
from ray._raylet import (  # type: ignore[attr-defined]  # its stub leaves both out
    GRPC_STATUS_CODE_UNIMPLEMENTED,
    InnerGcsClient,
)
from ray.exceptions import RayError, RpcError

from appliance.spec import RuntimeSpec
from wsc.core.errors import ClusterJobInitError
from wsc.core.units import MIB

_GREETING_S = 5.0
_ANSWER_S = 15.0  # a busy head greets at once, but may take a while to answer a call
_OBJECT_STORE_BYTES = 256 * MIB  # control and reports only: tensors travel on the links

_START_ONE = "start it with `ray start --head`, or let runtime.address be 'local'"

# What ray.init raises; SystemExit is how it gives up on an address.
_INIT_FAILURES = (RayError, OSError, RuntimeError, ValueError, SystemExit)

# Client preface and empty SETTINGS frame (RFC 9113, sections 3.4 and 6.5): any gRPC server replies
# with its own SETTINGS, whose type is the fourth byte.
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_SETTINGS_TYPE = 4

_NOT_RAY = "the port is open, but not Ray's (whose default is 6379)"


def enter(runtime: RuntimeSpec) -> bool:
    """Connect this process to Ray; False if it was connected already, and is not ours to leave.

    Raises ClusterJobInitError, within seconds when no Ray listens at ``runtime.address``.
    """
    if ray.is_initialized():
        return False
    try:
        if runtime.address != "local":
            _check_address(runtime.address)
        _init(runtime.address)
    except _INIT_FAILURES as error:
        ray.shutdown()
        raise ClusterJobInitError(
            "Ray could not be started" if runtime.address == "local" else "Ray could not be joined",
            where=f"runtime.address: {runtime.address}",
            value=(str(error.__cause__ or error).strip() or repr(error)).splitlines()[-1],
        ) from error
    except BaseException:  # Ctrl-C: leave no half-started instance
        ray.shutdown()
        raise
    return True


def _init(address: str) -> None:
    is_private = address == "local"
    ray.init(
        address=address,
        include_dashboard=False if is_private else None,
        object_store_memory=_OBJECT_STORE_BYTES if is_private else None,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


def _check_address(address: str) -> None:
    """Look whether Ray listens there: ray.init alone would try again and again, for minutes."""
    where = _latest_instance() if address == "auto" else address
    host, _, port = where.rpartition(":")
    if not host or not port.isdecimal():
        raise ClusterJobInitError(
            "this is no address of a Ray cluster",
            where="runtime.address",
            value=where,
            rule="local, auto, or host:port",
        )
    try:
        _greet(host, int(port))
        if address != "auto":  # may need a token, which ray.init alone finds for it
            _ask(where)
    except (OSError, OverflowError) as error:
        raise ClusterJobInitError(
            "no Ray cluster answers",
            where=f"runtime.address: {where}",
            value=error,
            remedy=_START_ONE,
        ) from error


def _latest_instance() -> str:
    """Where ``ray.init`` would look: in RAY_ADDRESS, among processes, in what `ray start` noted.

    The note outlives an instance that was killed.
    """
    try:
        found: str = services.get_ray_address_from_environment("auto", temp_dir=None)
    except ConnectionError as error:
        raise ClusterJobInitError(
            "no Ray cluster runs on this host", where="runtime.address: auto", remedy=_START_ONE
        ) from error
    return found


def _greet(host: str, port: int) -> None:
    """ConnectionError unless a gRPC server listens there."""
    with socket.create_connection((host, port), timeout=_GREETING_S) as connection:
        if os.environ.get("RAY_USE_TLS") == "1":
            return  # who listens can only be told with Ray's certificates
        connection.settimeout(_GREETING_S)
        connection.sendall(_HTTP2_HELLO)
        reply = connection.recv(9)
    if len(reply) < 4 or reply[3] != _SETTINGS_TYPE:
        raise ConnectionError(_NOT_RAY)


def _ask(where: str) -> None:
    """Ask once for the cluster's id, as ray.init does up to twenty times.

    Raises ConnectionError if the server does not know the question, so is no head of Ray; RayError
    if it refuses to answer or does not answer in time.
    """
    try:
        InnerGcsClient.standalone(where, None, round(_ANSWER_S * 1000))
    except RpcError as error:
        if error.rpc_code == GRPC_STATUS_CODE_UNIMPLEMENTED:
            raise ConnectionError(_NOT_RAY) from error
        raise
