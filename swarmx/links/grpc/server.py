"""The server of a role in gRPC: it refuses further peers, and has a thread for each stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import grpc

from swarmx.links.endpoint import cannot_listen

SERVICE, METHOD = "waferstream.Link", "Stream"

_MAX_PEERS = 1024  # each peer that sends keeps one waiting thread
_SILENCE_MS = 5000  # a host that answers nothing is lost after twice this time
OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", _SILENCE_MS),
    ("grpc.keepalive_timeout_ms", _SILENCE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _SILENCE_MS - 1000),
)
"""Of servers and channels: no proxy, and a silent host is noticed."""


class _DaemonThreads(Executor):
    """Executor with a daemon thread per stream; unlike a pool's, it does not delay the exit."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future


def listen(server: grpc.Server, place: str, credentials: grpc.ServerCredentials) -> None:
    """Start a server on the host and port of ``place``; ClusterJobInitError if it is taken."""
    try:
        server.add_secure_port(place, credentials)
    except RuntimeError as error:
        raise cannot_listen(place, error) from error
    server.start()


def make_server(take_stream: object) -> grpc.Server:
    """Return a server that gives every stream to a function, in a thread of its own."""
    handler = grpc.stream_unary_rpc_method_handler(take_stream)
    return grpc.server(
        _DaemonThreads(),
        handlers=[grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})],
        options=OPTIONS,
        maximum_concurrent_rpcs=_MAX_PEERS,  # refuse a further one instead of queueing it
    )
