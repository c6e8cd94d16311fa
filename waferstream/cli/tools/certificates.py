"""``waferstream certificates``: make what ``runtime.tls`` of cluster.yaml names."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from swarmx.links.certificates import Credentials, make_authority, make_certificate
from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import print_rows, prints_json
from waferstream.core.errors import ConfigError
from waferstream.host.user_state import open_private

_AUTHORITY, _CERTIFICATE, _KEY = "ca.pem", "certificate.pem", "key.pem"
_AUTHORITY_KEY = "ca.key"


@command("certificates make", "certificates --host 10.0.0.1")
def make(
    folder: Annotated[Path, Argument(help="where to write; an authority there is used")],
    host: Annotated[
        list[str],
        Option(
            metavar="NAME[,NAME...]",
            help="names and IP addresses of a host; Ray's address of it must be one of them",
        ),
    ],
    days: Annotated[int, Option(min=1, max=36500, help="how long they are valid")] = 365,
) -> int:
    """Make an authority and a certificate for each host, for runtime.tls of cluster.yaml."""
    life = timedelta(days=days)
    notes: dict[Path, str] = {}
    try:
        authority = _authority(folder, life)
        for each in host:
            name, *others = _names(each)
            made = make_certificate(authority, [name, *others], life)
            _write_host(folder / name, authority, made)
            notes[folder / name] = f"copy to {name}, to the same path on every host"
    except (OSError, ValueError) as error:
        raise ConfigError(
            "the certificates cannot be made",
            code="certificates-not-made",
            where=str(folder),
            value=error,
        ) from error
    notes[folder / _AUTHORITY_KEY] = "keep it secret; whoever has it can join"
    if prints_json():
        return print_rows([{"path": path, "note": note} for path, note in notes.items()])
    print(*(f"{path}: {note}" for path, note in notes.items()), sep="\n")
    return 0


def _names(host: str) -> list[str]:
    """Return the names of a host; the first is also that of a folder."""
    names = host.split(",")
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.:-]*", name):
            raise ConfigError(
                "a host must be a name or an IP address",
                code="host-name-malformed",
                where="--host",
                value=name,
            )
    return names


def _authority(folder: Path, life: timedelta) -> Credentials:
    """Return the authority of a folder, made if there is none."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    certificate, key = folder / _AUTHORITY, folder / _AUTHORITY_KEY
    if key.exists():
        return Credentials(certificate.read_bytes(), key.read_bytes())
    made = make_authority("WaferStream", life)
    _write_secret(key, made.key)
    certificate.write_bytes(made.certificate)
    return made


def _write_host(folder: Path, authority: Credentials, made: Credentials) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    _write_secret(folder / _KEY, made.key)
    (folder / _CERTIFICATE).write_bytes(made.certificate)
    (folder / _AUTHORITY).write_bytes(authority.certificate)


def _write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    path.unlink(missing_ok=True)
    with open(path, "xb", opener=open_private) as file:
        file.write(content)
