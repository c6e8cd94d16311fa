"""Connections to a management, by certificates where it is not on this host."""

from __future__ import annotations

from pathlib import Path

import grpc

from swarmx.links.certificates import read_credentials
from waferstream.core.config_errors import unreadable
from waferstream.core.errors import ConfigError
from waferstream.host.loopback import is_loopback
from waferstream.management.wire.service import CHANNEL_OPTIONS


def channel_to(address: str, certificate: Path | None) -> grpc.Channel:
    """Return a channel to a management.

    Args:
        address: ``host:port``.
        certificate: Of the authority; a folder that has a certificate and a key of the client, too,
            as ``waferstream certificates make`` writes it; None on loopback.

    Raises:
        ConfigError: Another host needs a certificate, or the files cannot be used.
    """
    if certificate is not None:
        return grpc.secure_channel(address, _credentials(certificate), CHANNEL_OPTIONS)
    host = address.rpartition(":")[0].strip("[]")
    if not is_loopback(host):
        raise ConfigError(
            "a management on another host must be asked with its certificate",
            code="management-without-certificate",
            where=address,
            rule="without TLS, the token could be read on the way",
            remedy="--credentials_path names ca.pem of the management, or a folder with all files",
        )
    return grpc.insecure_channel(address, CHANNEL_OPTIONS)


def _credentials(certificate: Path) -> grpc.ChannelCredentials:
    if certificate.is_dir():
        names = ("ca.pem", "certificate.pem", "key.pem")
        own = read_credentials(*(certificate / name for name in names))
        return grpc.ssl_channel_credentials(own.authority, own.key, own.certificate)
    try:
        return grpc.ssl_channel_credentials(certificate.read_bytes())
    except OSError as error:
        raise unreadable(certificate, error) from error
