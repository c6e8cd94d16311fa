"""The management of a site: named by a flag, by the environment, or by the site's configuration.

``CSCONFIG_PATH`` names a file such as the vendor's ``/opt/cerebras/config_v2``: clusters with their
servers and certificates, contexts, and the context that is used.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ConfigDict, Field, field_validator

from waferstream.core.config import Config, load_yaml, validate
from waferstream.core.errors import ConfigError
from waferstream.management.client.address import token_for

if TYPE_CHECKING:
    from waferstream.management.client.remote import RemoteClient

ADDRESS = "WAFERSTREAM_MGMT_ADDRESS"
CONFIGURATION = "CSCONFIG_PATH"
"""Environment variables of a user and of a site."""


class Address(Config):
    """A management, and how one shows who one is."""

    address: str
    """``host:port`` of gRPC."""

    token: str = ""
    certificate: Path | None = None
    """Of the authority that has signed that of the management; None on loopback."""

    checks_version: bool = True

    @field_validator("address")
    @classmethod
    def _check(cls, address: str) -> str:
        if re.fullmatch(r"[^\s/]+:\d{1,5}", address) is None:
            raise ConfigError(
                "the address of a management must be HOST:PORT",
                code="not-allowed",
                where="--mgmt_address",
                value=address,
                remedy="name it as waferstream management start prints it, without http://",
            )
        return address


class _Named(Config):
    """An entry of the vendor's file; keys that only its own tools read are passed over."""

    model_config = ConfigDict(extra="ignore")
    name: str


class _Cluster(_Named):
    server: str
    certificate_authority: Path | None = Field(default=None, alias="certificateAuthority")


class _Context(_Named):
    cluster: str


class _Site(Config):
    """The file that ``CSCONFIG_PATH`` names."""

    model_config = ConfigDict(extra="ignore")
    clusters: tuple[_Cluster, ...] = Field(min_length=1)
    contexts: tuple[_Context, ...] = ()
    current_context: str = Field(default="", alias="currentContext")


def address_of(
    mgmt_address: str | None, certificate: Path | None = None, checks_version: bool = True
) -> Address | None:
    """Return the management that a command asks; None where it is about this user's own runs.

    Args:
        mgmt_address: What the command line or params.yaml names, if anything; empty for none.
        certificate: Of the authority that has signed that of the management.
        checks_version: Whether another release is refused.

    Raises:
        ConfigError: The address or the configuration of the site is malformed.
    """
    named = os.environ.get(ADDRESS) if mgmt_address is None else mgmt_address
    of_site = _current(os.environ.get(CONFIGURATION)) if named is None else None
    address = named if of_site is None else of_site.server
    if not address:
        return None
    authority = certificate or (of_site.certificate_authority if of_site else None)
    return Address(
        address=address,
        token=token_for(address),
        certificate=authority,
        checks_version=checks_version,
    )


def connect(address: Address) -> RemoteClient:
    """Return the client of a management.

    Raises:
        ConfigError: Another host needs a certificate, or that cannot be read.
    """
    from waferstream.management.client.remote import RemoteClient  # noqa: PLC0415  (gRPC)

    return RemoteClient(
        address.address,
        address.token,
        address.certificate,
        checks_version=address.checks_version,
    )


def _current(path: str | None) -> _Cluster | None:
    """Return the cluster of the context that a file of a site uses."""
    if not path:
        return None
    where = f"{path} ({CONFIGURATION})"
    site = validate(_Site, load_yaml(Path(path)), where)
    contexts = {each.name: each.cluster for each in site.contexts}
    clusters = {each.name: each for each in site.clusters}
    name = contexts.get(site.current_context, site.current_context) or site.clusters[0].name
    if name not in clusters:
        raise ConfigError(
            "the context must be of a cluster of the file",
            code="unknown-name",
            where=where,
            value=name,
            rule=", ".join(clusters),
        )
    return clusters[name]
