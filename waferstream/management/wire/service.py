"""The methods of the service, for the server and for clients (management.proto)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from waferstream.core.errors import ApplianceCorruptionError
from waferstream.core.units import MIB
from waferstream.management.wire.management_pb2 import (  # type: ignore[attr-defined]  # made at import
    Answer,
    Call,
    Chunk,
    Followed,
    Following,
    Uploaded,
    Wanted,
)

SERVICE = "waferstream.management.v1.Management"

TOKEN_KEY, VERSION_KEY = "authorization", "waferstream-version"
"""Metadata of every call."""

CHUNK_BYTES = 1 * MIB
"""The most content of a chunk, or of a part of a log."""

MOST_QUESTION_BYTES = 4 * MIB
"""The largest message to a server."""

MOST_ANSWER_BYTES = 256 * MIB
"""The largest message to a client: a list of 100,000 workflows."""

_LOOK_MS = 20_000  # between two looks at whether a silent peer is there

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MOST_ANSWER_BYTES),
    ("grpc.min_reconnect_backoff_ms", 1000),  # of an attempt
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", _LOOK_MS),
    ("grpc.keepalive_timeout_ms", _LOOK_MS),
    ("grpc.http2.max_pings_without_data", 0),
)

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MOST_QUESTION_BYTES),
    ("grpc.max_send_message_length", MOST_ANSWER_BYTES),
    ("grpc.keepalive_time_ms", _LOOK_MS),
    ("grpc.keepalive_timeout_ms", _LOOK_MS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _LOOK_MS // 2),
)


@dataclass(frozen=True)
class Method:
    """A method of the service: its messages, and which side sends many of them."""

    name: str
    question: Any
    answer: Any
    shape: str
    """``unary_unary``, ``unary_stream`` or ``stream_unary``, as gRPC names it."""

    def caller(self, channel: grpc.Channel) -> Any:
        """Return what calls the method on a channel."""
        return getattr(channel, self.shape)(
            f"/{SERVICE}/{self.name}",
            request_serializer=self.question.SerializeToString,
            response_deserializer=self.answer.FromString,
        )

    def handler(self, behaviour: Any) -> grpc.RpcMethodHandler:
        """Return what answers the method by a function, which gets messages as bytes."""
        return getattr(grpc, f"{self.shape}_rpc_method_handler")(
            behaviour, response_serializer=self.answer.SerializeToString
        )

    def read(self, encoded: bytes) -> Any:
        """Return a message to the server.

        Raises:
            ApplianceCorruptionError: The bytes are none.
        """
        try:
            return self.question.FromString(encoded)
        except DecodeError as error:
            raise ApplianceCorruptionError(
                "a message must be one of the service", code="message-damaged", where=self.name
            ) from error


DO = Method("Do", Call, Answer, "unary_unary")
FOLLOW = Method("Follow", Following, Followed, "unary_stream")
UPLOAD = Method("Upload", Chunk, Uploaded, "stream_unary")
DOWNLOAD = Method("Download", Wanted, Chunk, "unary_stream")


def service_handler(behaviours: Mapping[Method, Any]) -> grpc.GenericRpcHandler:
    """Return the service whose methods are answered by functions."""
    handlers = {method.name: method.handler(behaviours[method]) for method in behaviours}
    return grpc.method_handlers_generic_handler(SERVICE, handlers)
