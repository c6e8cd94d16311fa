"""Both doors of a management in one thread: servers of gRPC and HTTP, from start to end."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Self

import uvicorn
from fastapi import APIRouter

from waferstream.core.errors import ConfigError
from waferstream.management.door.authentication import Authentication
from waferstream.management.door.grpc_door import GrpcDoor
from waferstream.management.door.handlers import Handlers
from waferstream.management.door.http_door import HttpDoor
from waferstream.management.door.service import Service
from waferstream.management.door.tls import DoorTls, check_host, uvicorn_options

START_S = 30.0
"""How long the doors may take to open."""

DRAIN_S = 2.0
"""How long calls that are under way may take when the doors close."""

_THREADS = 8  # that call what is behind the doors
_MOST_CONNECTIONS = 2048
_BACKLOG = 1024


@dataclass(frozen=True)
class DoorSettings:
    """Where a management listens.

    Attributes:
        host: An address; without certificates one of loopback.
        port: Of gRPC; 0 takes a free one.
        http_port: Of HTTP; 0 takes a free one.
        tls: Certificates; None for loopback.
        routers: Further paths of HTTP, made for what answers them.
    """

    host: str = "127.0.0.1"
    port: int = 0
    http_port: int = 0
    tls: DoorTls | None = None
    routers: Iterable[Callable[[Service], APIRouter]] = ()


class Ports(NamedTuple):
    """Where doors are open."""

    grpc: int
    http: int


class Doors:
    """Doors that are open as long as the context lasts.

    Args:
        handlers: What is behind them.
        authentication: Who asks.
        settings: Where they listen.

    Raises:
        ConfigError: A port is taken, or certificates are missing or unusable.
    """

    def __init__(
        self, handlers: Handlers, authentication: Authentication, settings: DoorSettings
    ) -> None:
        check_host(settings.host, settings.tls)
        self._handlers, self._authentication = handlers, authentication
        self._settings = settings
        self._opened: Future[Ports] = Future()
        self._thread = threading.Thread(target=self._run, name="doors", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ports = self._opened.result(START_S)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(2 * DRAIN_S + START_S)

    @property
    def address(self) -> str:
        """Where clients find the management."""
        return f"{self._host}:{self._ports.grpc}"

    @property
    def url(self) -> str:
        """Where browsers find it."""
        scheme = "http" if self._settings.tls is None else "https"
        return f"{scheme}://{self._host}:{self._ports.http}"

    @property
    def _host(self) -> str:
        host = self._settings.host
        return f"[{host}]" if ":" in host else host

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)

    async def _serve(self) -> None:
        """Open both doors, wait, and close them."""
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        tls = self._settings.tls
        with ThreadPoolExecutor(_THREADS, "door") as executor, self._bound() as listener:
            service = Service(self._handlers, self._authentication, executor)
            of_grpc = GrpcDoor(service, f"{self._host}:{self._settings.port}", tls)
            routers = [make(service) for make in self._settings.routers]
            of_http = HttpDoor(service, is_secret=tls is not None, routers=routers)
            server = uvicorn.Server(
                uvicorn.Config(
                    of_http.app,
                    log_level="warning",
                    lifespan="off",
                    limit_concurrency=_MOST_CONNECTIONS,
                    timeout_graceful_shutdown=int(DRAIN_S),
                    **uvicorn_options(tls),
                )
            )
            await of_grpc.start()
            async with asyncio.TaskGroup() as tasks:
                feeding = tasks.create_task(service.feed.run())
                serving = tasks.create_task(server.serve(sockets=[listener]))
                self._opened.set_result(Ports(of_grpc.port, listener.getsockname()[1]))
                await self._closing.wait()
                server.should_exit = True
                await of_grpc.stop(DRAIN_S)
                await serving
                feeding.cancel()

    def _bound(self) -> socket.socket:
        """Return a socket that listens for HTTP; ConfigError if it cannot."""
        host, port = self._settings.host, self._settings.http_port
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(_BACKLOG)
        except (OSError, OverflowError) as error:
            listener.close()
            raise ConfigError(
                "the port of the pages must be free",
                code="management-port-in-use",
                where=f"{host}:{port}",
                value=error,
                remedy="--http_port 0 takes a free one",
            ) from error
        return listener
