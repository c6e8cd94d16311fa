"""Who may enter: keys of requests, and what answers say of their limits."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from waferstream.core.errors import RequestRefused
from waferstream.host.loopback import is_loopback
from waferstream.serving.accounts.accounts import Accounts
from waferstream.serving.accounts.callers import Anybody, Caller
from waferstream.serving.http.errors import refusal, refused

_OPEN_PATHS = re.compile(r"/(health|playground|account|pages/.*)?")
"""What is answered without a key: the health, and the pages for people."""

_TOLD = (("requests", "day"), ("tokens", "minute"))
"""The limits that headers tell, as those of the vendor's service do."""


class Access:
    """The application for those who have a key; for anybody where there are no accounts."""

    def __init__(self, app: ASGIApp, accounts: Accounts | None) -> None:
        self._app = app
        self._accounts = accounts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request in the name of its caller, which ``caller_of`` returns."""
        if scope["type"] != "http" or _OPEN_PATHS.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._caller(Headers(scope=scope))
        except RequestRefused as error:
            await refused(refusal(error))(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, _telling(caller, send))

    async def _caller(self, headers: Headers) -> Caller:
        if self._accounts is None:
            _check_host(headers.get("host", ""))
            return Anybody()
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise RequestRefused(
                "a request must have a key",
                code="key-missing",
                rule="Authorization: Bearer KEY",
                remedy="waferstream serve keys create NAME makes one",
            )
        return await self._accounts.caller(secret.strip())


def _check_host(name: str) -> None:
    """Refuse a name that a foreign page may have given to this host, to read answers (rebinding).

    Raises:
        RequestRefused: It is none of loopback.
    """
    host = urlsplit(f"//{name}").hostname or ""
    if not is_loopback(host):
        raise RequestRefused(
            "a service without accounts answers its own host",
            code="host-not-loopback",
            where="Host",
            value=name,
            rule="localhost, or an address of loopback",
            remedy="ask http://127.0.0.1, through ssh -L from elsewhere, or serve with --accounts",
        )


def caller_of(request: Request) -> Caller:
    """Return who asks."""
    caller: Caller = request.state.caller
    return caller


def _telling(caller: Caller, send: Send) -> Send:
    """Return what sends an answer with the limits of its caller in its headers."""

    async def send_told(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers, limits = MutableHeaders(scope=message), caller.limits()
            for of, per in _TOLD:
                for name, value in limits[of].get(per, {}).items():
                    told = f"{value:.3f}" if name == "reset" else f"{value:.0f}"
                    headers[f"x-ratelimit-{name}-{of}-{per}"] = told
        await send(message)

    return send_told


class Own:
    """The paths by which a caller sees its own limits and usage."""

    def __init__(self) -> None:
        self.routes = [Route("/v1/limits", self.limits), Route("/v1/usage", self.usage)]

    async def limits(self, request: Request) -> Response:
        """Say what the caller may use, and what is left of it."""
        caller = caller_of(request)
        return JSONResponse({"object": "limits", "key": caller.name, **caller.limits()})

    async def usage(self, request: Request) -> Response:
        """Say what the caller has used by model and day, and its balance in dollars."""
        caller = caller_of(request)
        try:
            used = await caller.usage()
        except RequestRefused as error:
            raise refusal(error) from error
        return JSONResponse({"object": "usage", "key": caller.name, **used})
