"""The server of an attached cluster: calls of gRPC become tasks of a ``ClusterHost``.

Every call shows the token, the versions and the session of its program in its metadata. All methods
take a parcel and answer one; an error is the status that its class has, with all fields beside it.
"""

from __future__ import annotations

import hmac
import json
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from appliance.remote.access import Access, new_access
from appliance.remote.commands import Description
from appliance.remote.host import ClusterHost
from appliance.remote.pickles import command_from, pickled
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
from swarmx.links.endpoint import cannot_listen
from waferstream.core.error_status import status_of
from waferstream.core.errors import (
    ApplianceVersionError,
    RequestRefused,
    WaferStreamError,
)
from waferstream.core.system_errors import file_error
from waferstream.core.traveling_errors import ERROR_KEY, encode_error

log = logging.getLogger("waferstream")

_MOST_CALLS = 16
_LOOK_S = 0.5
_GRACE_S = 2.0


@dataclass(frozen=True)
class Call:
    """An authentic call: the session of its program, and the frames that it sends."""

    session: str
    frames: Iterator[bytes]
    context: grpc.ServicerContext


Method = Callable[[Call], Iterator[bytes]]
"""A method: it yields the frames of the answer."""


@contextmanager
def serving(host: ClusterHost, address: str, lease_s: float) -> Iterator[Access]:
    """Listen at ``host:port``, where port 0 takes a free one; yield who may come in.

    Raises:
        ClusterJobInitError: The address is taken, or not of this host.
    """
    access, own = new_access(address)
    service = _Service(host, access.token, Description.of(host.spec, lease_s))
    handlers = {
        name: grpc.stream_stream_rpc_method_handler(service.answering(method))
        for name, method in service.methods.items()
    }
    server = grpc.server(
        ThreadPoolExecutor(_MOST_CALLS, thread_name_prefix="attached"),
        handlers=[grpc.method_handlers_generic_handler(SERVICE, handlers)],
        options=OPTIONS,
        maximum_concurrent_rpcs=_MOST_CALLS,
    )
    credentials = grpc.ssl_server_credentials([(own.key, own.certificate)])
    try:
        port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise cannot_listen(address, error) from error
    server.start()
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(host, over), daemon=True)
    watch.start()
    try:
        yield access.model_copy(update={"address": f"{address.rpartition(':')[0]}:{port}"})
    finally:
        over.set()
        server.stop(_GRACE_S).wait()
        watch.join()


def _watch(host: ClusterHost, over: threading.Event) -> None:
    while not over.wait(_LOOK_S):
        host.end_silent()


class _Service:
    """The methods of the service.

    Args:
        host: Who does the commands.
        token: What every call must show.
        description: What programs are told of this server.
    """

    def __init__(self, host: ClusterHost, token: str, description: Description) -> None:
        self._host = host
        self._token = token.encode()
        self._description = description
        self.methods: dict[str, Method] = {
            "Describe": self._describe,
            "Do": self._do,
            "Beat": self._beat,
            "Upload": self._upload,
            "Download": self._download,
            "Leave": self._leave,
        }

    def answering(self, method: Method) -> Callable[..., Iterator[bytes]]:
        """Return a method as gRPC calls it, for authentic callers alone."""

        def answer(frames: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            try:
                yield from method(Call(self._checked(context), frames, context))
            except WaferStreamError as error:
                _refuse(context, error)
            except OSError as error:
                _refuse(context, file_error(error))
            except CancelledError:
                return  # nobody waits any more

        return answer

    def _checked(self, context: grpc.ServicerContext) -> str:
        """Return the session of an authentic call of the same version.

        Raises:
            RequestRefused: The token is another one.
            ApplianceVersionError: The program has another version.
        """
        shown = {key: str(value) for key, value in context.invocation_metadata()}
        if not hmac.compare_digest(shown.get(TOKEN, "").encode(), self._token):
            raise RequestRefused(
                "the cluster must know who asks",
                code="key-unknown",
                where="credentials_path",
                rule="the token of the file that the server has written when it started",
                remedy="copy the file of the running server again",
            )
        if shown.get(VERSION_KEY) != VERSIONS:
            raise ApplianceVersionError(
                "program and cluster must have the same version",
                code="version-mismatch",
                value=f"program: {shown.get(VERSION_KEY)}; cluster: {VERSIONS}",
                rule="a command carries compiled Python",
                remedy="install the cluster's version where the program runs",
            )
        return shown.get(SESSION, "")

    def _describe(self, _call: Call) -> Iterator[bytes]:
        yield from Parcel(self._description.model_dump(mode="json")).frames()

    def _do(self, call: Call) -> Iterator[bytes]:
        self._host.hear(call.session)
        task = self._host.ask(call.session, command_from(received(call.frames).buffers))
        call.context.add_callback(lambda: self._host.interrupt(task))
        yield from Parcel(buffers=pickled(_result(task.result, call.context))).frames()

    def _beat(self, call: Call) -> Iterator[bytes]:
        self._host.hear(call.session)
        yield from Parcel({"newest_step": self._host.newest_step()}).frames()

    def _upload(self, call: Call) -> Iterator[bytes]:
        name = json.loads(next(call.frames))["name"]
        write_frames(self._host.path(call.session, name), call.frames)
        yield from Parcel().frames()

    def _download(self, call: Call) -> Iterator[bytes]:
        path: Path = self._host.path(call.session, received(call.frames).head["name"])
        yield from file_frames(path)
        path.unlink()

    def _leave(self, call: Call) -> Iterator[bytes]:
        self._host.leave(call.session)
        yield from Parcel().frames()


def _result(future: Future[Any], context: grpc.ServicerContext) -> Any:
    """Wait for a result as long as its program does."""
    while context.is_active():
        try:
            return future.result(timeout=_LOOK_S)
        except NotYet:
            continue
    raise CancelledError


def _refuse(context: grpc.ServicerContext, error: WaferStreamError) -> None:
    """End a call with an error."""
    context.set_trailing_metadata(((ERROR_KEY, encode_error(error)),))
    context.abort(grpc.StatusCode[status_of(type(error), error.code).grpc], error.what)
