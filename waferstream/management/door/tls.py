"""Certificates of the doors, and where they may listen without."""

from __future__ import annotations

import ssl
from typing import Any

import grpc

from swarmx.links.certificates import read_credentials
from swarmx.links.tls import TlsSpec
from waferstream.core.errors import ConfigError
from waferstream.host.loopback import is_loopback


class DoorTls(TlsSpec):
    """Files of the host of a management (``waferstream certificates make``)."""

    clients: bool = False
    """Whether clients have to show a certificate of the authority; over gRPC that of a user, whose
    name it has, does for a token."""


def check_host(host: str, tls: DoorTls | None) -> None:
    """Refuse an address that others reach, without certificates: tokens could be read on the way.

    Raises:
        ConfigError: It is none of loopback.
    """
    if tls is None and not is_loopback(host):
        raise ConfigError(
            "a management that others reach must have a certificate",
            code="management-beyond-loopback",
            where="--host",
            value=host,
            rule="without TLS, tokens could be read on the way",
            remedy="waferstream certificates make FOLDER --host NAME, then --tls FOLDER/NAME",
        )


def server_credentials(tls: DoorTls) -> grpc.ServerCredentials:
    """Return the certificate of the door of gRPC."""
    own = read_credentials(tls.ca, tls.certificate, tls.key)
    return grpc.ssl_server_credentials(
        [(own.key, own.certificate)], own.authority, require_client_auth=tls.clients
    )


def uvicorn_options(tls: DoorTls | None) -> dict[str, Any]:
    """Return the certificate of the door of HTTP."""
    if tls is None:
        return {}
    return {
        "ssl_certfile": tls.certificate,
        "ssl_keyfile": tls.key,
        "ssl_ca_certs": tls.ca,
        "ssl_cert_reqs": ssl.CERT_REQUIRED if tls.clients else ssl.CERT_NONE,
    }
