"""What a program needs in order to reach a cluster: address, token and certificate, in one file."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from waferstream.core.config import Config, load_yaml, validate
from waferstream.core.errors import ConfigError
from waferstream.host.files import json_text
from waferstream.host.user_state import make_private, open_private, state_folder

if TYPE_CHECKING:
    from swarmx.links.certificates import Credentials

SERVER = "attached-cluster"
"""The name in the certificate of a server, whatever its address is."""

_TOKEN_BYTES = 32
_OTHERS = 0o077


class Access(Config):
    """The right to use one server. Whoever has it may run code there."""

    address: str
    """Where the server listens, ``host:port``."""

    token: str = Field(min_length=_TOKEN_BYTES, repr=False)
    certificate: str
    """The certificate of the server (PEM): no other is accepted at this address."""

    def write(self, path: Path) -> None:
        """Write the file, which only its user can read."""
        path.unlink(missing_ok=True)
        with open(path, "x", encoding="utf-8", opener=open_private) as file:
            file.write(json_text(self.model_dump()))


def new_access(address: str) -> tuple[Access, Credentials]:
    """Make token and certificate of a new server; return them, and the key of the certificate."""
    from swarmx.links.certificates import certificate_of_role  # noqa: PLC0415  (cryptography)

    own = certificate_of_role(SERVER)
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    return Access(address=address, token=token, certificate=own.certificate.decode()), own


def access_path(address: str) -> Path:
    """Return where a server of this user on this host keeps the file, in a private folder."""
    folder = state_folder() / "clusters"
    make_private(folder)
    return folder / f"{address}.json"


def read_access(address: str, path: Path | None) -> Access | None:
    """Return the access to a server from a ``.json`` file, by default that of this user's own.

    None where there is none: what listens at the address is a management, not a server.

    Raises:
        ConfigError: Others can read the file, or it is damaged.
    """
    if path is not None and path.suffix != ".json":
        return None
    path = path or access_path(address)
    if not path.is_file():
        return None
    if path.stat().st_mode & _OTHERS:
        raise ConfigError(
            "the access to a cluster must be readable by its owner alone",
            code="key-readable-by-others",
            where=str(path),
            value=f"mode {path.stat().st_mode & 0o777:o}",
            remedy=f"chmod 600 {path}",
        )
    return validate(Access, load_yaml(path), str(path)).model_copy(update={"address": address})
