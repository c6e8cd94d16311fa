"""Who asks: the user of a token or of a certificate, or the run that a process speaks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from waferstream.core.errors import ApplianceVersionError, RequestRefused
from waferstream.core.secrets import digest_of
from waferstream.management.model.operations import Caller
from waferstream.version import VERSION

_SCHEME = "bearer "


@dataclass(frozen=True)
class Shown:
    """What a request shows of who asks.

    Attributes:
        authorization: ``Bearer TOKEN``, or nothing.
        version: The release of the client; nothing where it does without the check.
        certified: The names in the certificate of the client, which an authority has signed.
    """

    authorization: str = ""
    version: str = ""
    certified: tuple[str, ...] = ()


class Users(Protocol):
    """What the store knows of users."""

    def users(self) -> list[Caller]:
        """Return all users."""

    def caller_of(self, digest: str) -> Caller | None:
        """Return whom a token is of, by its digest; None if it is unknown or revoked."""


class Authentication:
    """Tells callers from what their requests show.

    Args:
        reading: Enters a block that reads the store.
        workflow_of: Returns the workflow whose run has a token; None if it is of no run.
    """

    def __init__(
        self,
        reading: Callable[[], AbstractContextManager[Users]],
        workflow_of: Callable[[str], str | None],
    ) -> None:
        self._reading = reading
        self._workflow_of = workflow_of

    def caller(self, shown: Shown) -> Caller:
        """Return who asks; a token counts more than a certificate.

        Raises:
            ApplianceVersionError: The client is of another release.
            RequestRefused: It shows nothing, or a token that is unknown or revoked.
        """
        check_version(shown.version)
        token = _token_in(shown.authorization)
        if token is None:
            return self._certified(shown.certified)
        workflow = self._workflow_of(token)
        if workflow is not None:
            return Caller(user=workflow, role="run", workflow=workflow)
        with self._reading() as users:
            caller = users.caller_of(digest_of(token))
        if caller is None:
            raise RequestRefused(
                "the token must be one of this management, and not revoked",
                code="token-unknown",
                remedy="ask an administrator for another (waferstream ctl user add NAME)",
            )
        return caller

    def _certified(self, names: Iterable[str]) -> Caller:
        """Return the user whom a certificate names."""
        with self._reading() as users:
            found = [each for each in users.users() if each.user in set(names)]
        if len(found) != 1:
            raise RequestRefused(
                "a request must show a token, or a certificate of one user",
                code="token-missing",
                value=", ".join(names) or None,
                rule="Authorization: Bearer TOKEN",
                remedy="set WAFERSTREAM_TOKEN to what waferstream ctl user add NAME has printed",
            )
        return found[0]


def check_version(version: str) -> None:
    """Raise ApplianceVersionError unless a client fits: the first two numbers have to agree."""
    if version and _series(version) != _series(VERSION):
        raise ApplianceVersionError(
            "client and management must be of the same series",
            code="version-differs",
            value=version,
            rule=f"the management is {VERSION}",
            remedy=f"pip install 'waferstream=={_series(VERSION)}.*', or --disable_version_check",
        )


def _series(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _token_in(authorization: str) -> str | None:
    if not authorization.lower().startswith(_SCHEME):
        return None
    return authorization[len(_SCHEME) :].strip() or None
