"""The server: a socket, the service, and their end."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from waferstream.core.errors import ConfigError
from waferstream.serving.accounts.accounts import Accounts
from waferstream.serving.accounts.prices import FREE, read_price
from waferstream.serving.answers import Answers
from waferstream.serving.batches.files import files_folder
from waferstream.serving.deployment import Deployment
from waferstream.serving.http.app import make_app

DRAIN_S = 30
"""How long answers that are under way may take after a signal."""

BACKLOG = 1024
"""Connections that wait to be accepted."""


@dataclass(frozen=True)
class ServiceSettings:
    """Where a service listens, and what it keeps.

    Attributes:
        host: An address; without accounts one of loopback.
        port: 0 takes a free one.
        files: Where files and batches of clients are kept; None keeps them until the end.
        accounts: The file of accounts; None answers anybody.
        prices: A file of prices by model; None asks for nothing.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    files: Path | None = None
    accounts: Path | None = None
    prices: Path | None = None


def serve(
    deployment: Deployment, settings: ServiceSettings, listening: Callable[[str], None]
) -> None:
    """Serve a model until SIGINT or SIGTERM; answers that are under way end first.

    Args:
        deployment: The model, and what answers.
        settings: Where the service listens.
        listening: Gets a line that says where, once requests are answered.

    Raises:
        ConfigError: The port is in use, or a folder or a file cannot be used.
    """
    with ExitStack() as stack:
        listener = stack.enter_context(_bound(settings.host, settings.port))
        folder = stack.enter_context(files_folder(settings.files))
        answers = stack.enter_context(Answers(deployment))
        name = answers.model.name
        price = FREE if settings.prices is None else read_price(settings.prices, name)
        accounts = None
        if settings.accounts is not None:
            accounts = stack.enter_context(Accounts(settings.accounts, price))
            stack.callback(answers.close)  # before the accounts, so that all are settled
        place = f"http://{settings.host}:{listener.getsockname()[1]}/v1"
        config = uvicorn.Config(
            make_app(answers, folder, accounts),
            log_level="warning",
            timeout_graceful_shutdown=DRAIN_S,
            lifespan="on",
        )
        listening(f"Serving {name} at {place}")
        uvicorn.Server(config).run(sockets=[listener])


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens; ConfigError if it cannot."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError(
            "the port of the service must be free",
            code="serve-port-in-use",
            where="--port",
            value=port,
            rule=str(error),
            remedy="--port 0 takes a free one",
        ) from error
    return listener
