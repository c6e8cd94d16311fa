"""The server: a socket, the service, and their end."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from waferstream.core.errors import ConfigError
from waferstream.serving.answers import Answers
from waferstream.serving.batches.files import files_folder
from waferstream.serving.http.app import make_app

DRAIN_S = 30
"""How long answers that are under way may take after a signal."""

BACKLOG = 1024
"""Connections that wait to be accepted."""


def serve(
    model_dir: Path, host: str, port: int, files: Path | None, listening: Callable[[str], None]
) -> None:
    """Serve a model until SIGINT or SIGTERM; answers that are under way end first.

    Args:
        model_dir: The folder of the model.
        host: An address of loopback.
        port: 0 takes a free one.
        files: Where files and batches of clients are kept; None keeps them until the end.
        listening: Gets a line that says where, once requests are answered.

    Raises:
        ConfigError: The port is in use, or a folder cannot be used.
    """
    with (
        _bound(host, port) as listener,
        files_folder(files) as folder,
        Answers(model_dir) as answers,
    ):
        place = f"http://{host}:{listener.getsockname()[1]}/v1"
        config = uvicorn.Config(
            make_app(answers, folder),
            log_level="warning",
            timeout_graceful_shutdown=DRAIN_S,
            lifespan="on",
        )
        listening(f"Serving {answers.model.name} at {place}")
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
