"""The door of gRPC: messages become calls of the service, and its errors statuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from waferstream.core.error_status import status_of
from waferstream.core.errors import ConfigError
from waferstream.core.traveling_errors import ERROR_KEY, encode_error
from waferstream.management.door.authentication import Shown
from waferstream.management.door.calls import typed
from waferstream.management.door.handlers import json_object
from waferstream.management.door.service import Service
from waferstream.management.door.tls import DoorTls, server_credentials
from waferstream.management.model.event import Event
from waferstream.management.wire.management_pb2 import (  # type: ignore[attr-defined]  # made at import
    Answer,
    Chunk,
    Followed,
    Uploaded,
)
from waferstream.management.wire.service import (
    DO,
    DOWNLOAD,
    FOLLOW,
    SERVER_OPTIONS,
    SERVICE,
    TOKEN_KEY,
    UPLOAD,
    VERSION_KEY,
    service_handler,
)

MOST_CALLS = 2048
"""Calls at a time, of all callers; a further one is refused."""

_MOST_TEXT = 200


class GrpcDoor:
    """A server of gRPC; it runs in the loop that makes it.

    Args:
        service: What answers.
        place: Host and port; port 0 takes a free one.
        tls: None for loopback.
    """

    def __init__(self, service: Service, place: str, tls: DoorTls | None) -> None:
        self._service = service
        self._health = health.aio.HealthServicer()
        behaviours = {
            DO: self._do, FOLLOW: self._follow, UPLOAD: self._upload, DOWNLOAD: self._download,
        }  # fmt: skip
        self._server = grpc.aio.server(
            handlers=[service_handler(behaviours)],
            options=SERVER_OPTIONS,
            maximum_concurrent_rpcs=MOST_CALLS,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.port = self._listen(place, tls)

    async def start(self) -> None:
        """Begin to answer."""
        await self._server.start()
        await self._health.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float) -> None:
        """End, after calls that are under way, or when the time for them is over."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)

    def _listen(self, place: str, tls: DoorTls | None) -> int:
        try:
            if tls is None:
                return int(self._server.add_insecure_port(place))
            return int(self._server.add_secure_port(place, server_credentials(tls)))
        except RuntimeError as error:
            raise ConfigError(
                "the port of the management must be free",
                code="management-port-in-use",
                where=place,
                value=error,
                remedy="--port 0 takes a free one",
            ) from error

    async def _do(self, encoded: bytes, context: grpc.aio.ServicerContext) -> Any:
        async with _answering(context):
            call = DO.read(encoded)
            given = json_object(call.json)
            return Answer(json=await self._service.do(_shown(context), call.operation, given))

    async def _follow(
        self, encoded: bytes, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        async with _answering(context):
            question = FOLLOW.read(encoded)
            place = question.after_event, question.log_offset
            parts = self._service.follow(_shown(context), question.workflow, *place)
            async with aclosing(parts):
                async for part in parts:
                    if isinstance(part, Event):
                        yield Followed(event=part.model_dump_json())
                    else:
                        yield Followed(log=part)

    async def _upload(self, chunks: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> Any:
        async with _answering(context):
            contents = (UPLOAD.read(chunk).content async for chunk in chunks)
            return Uploaded(digest=await self._service.upload(_shown(context), contents))

    async def _download(
        self, encoded: bytes, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        async with _answering(context):
            wanted = DOWNLOAD.read(encoded)
            contents = self._service.download(
                _shown(context), wanted.workflow, wanted.path, wanted.offset
            )
            async with aclosing(contents):
                async for content in contents:
                    yield Chunk(content=content)


def _shown(context: grpc.aio.ServicerContext) -> Shown:
    """Return what a call shows of who asks."""
    metadata = {
        key: value for key, value in context.invocation_metadata() if isinstance(value, str)
    }
    names = context.auth_context().get("x509_common_name", [])
    return Shown(
        metadata.get(TOKEN_KEY, ""),
        metadata.get(VERSION_KEY, ""),
        tuple(name.decode(errors="replace") for name in names),
    )


@asynccontextmanager
async def _answering(context: grpc.aio.ServicerContext) -> AsyncIterator[None]:
    """End a call with the status of the error that the block raises."""
    try:
        yield
    except grpc.aio.AbortError:
        raise
    except Exception as error:
        failure = typed(error)
        status = grpc.StatusCode[status_of(type(failure), failure.code).grpc]
        text = f"{failure.what} [{failure.code}]"[:_MOST_TEXT]
        await context.abort(status, text, ((ERROR_KEY, encode_error(failure)),))
