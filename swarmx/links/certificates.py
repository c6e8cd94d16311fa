"""Certificates of the link between hosts (X.509, RFC 5280): who a role is, and who it may talk to.

By default every role makes a key and a certificate of its own when it starts. The key never leaves
the process; the certificate goes to the peers with the role's address, and they accept no other.
With ``runtime.tls`` a role shows the certificate of its host instead, which an authority of the
user's has signed: peers then check both the authority and the directory.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from swarmx.links.tls import TlsSpec
from waferstream.core.errors import ConfigError

_CLOCK_SKEW = timedelta(days=1)  # clocks of hosts differ
_ROLE_LIFE = timedelta(days=3650)  # its key ends with the process
_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True)
class Credentials:
    """A certificate (PEM, with the chain to the authority), its private key, and the authority.

    Without an authority, the certificate alone is trusted.
    """

    certificate: bytes
    key: bytes = field(repr=False)
    authority: bytes | None = None

    @property
    def identity(self) -> str:
        """The certificate itself, without a chain, in normal form."""
        return normal_form(self.certificate)


def normal_form(pem: bytes) -> str:
    """Return the first certificate of a PEM file in the form in which gRPC states it.

    Raises:
        ValueError: There is none.
    """
    block = _BLOCK.search(pem.decode("ascii"))
    if block is None:
        raise ValueError("no certificate")
    return ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(block.group()))


def certificate_of_role(role: str) -> Credentials:
    """Make a key and a self-signed certificate for a role."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _certificate(role, role, key, _ROLE_LIFE).add_extension(_names([role]), False)
    return _credentials(builder.sign(key, hashes.SHA256()), key, None)


def credentials_of(role: str, tls: TlsSpec | None) -> Credentials:
    """Return the certificate of the role's host, or one of its own; see ``read_credentials``."""
    if tls is None:
        return certificate_of_role(role)
    return read_credentials(tls.ca, tls.certificate, tls.key)


def make_authority(name: str, life: timedelta) -> Credentials:
    """Make an authority that signs certificates of hosts."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _certificate(name, name, key, life).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), True
    )
    return _credentials(builder.sign(key, hashes.SHA256()), key, None)


def make_certificate(authority: Credentials, names: Sequence[str], life: timedelta) -> Credentials:
    """Make a certificate of a host, for the names and addresses under which others reach it."""
    signer = load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey), "made by make_authority"
    issuer = x509.load_pem_x509_certificate(authority.certificate).subject
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _certificate(names[0], issuer, key, life)
    builder = builder.add_extension(_names(names), False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
    signed = builder.sign(signer, hashes.SHA256())
    return _credentials(signed, key, authority.certificate)


def read_credentials(authority: Path, certificate: Path, key: Path) -> Credentials:
    """Read the files of ``runtime.tls``.

    Raises:
        ConfigError: A file is missing or damaged, other users can read the key, the key is not that
            of the certificate, or the certificate is not valid now.
    """
    contents = {path: _read(path) for path in (authority, certificate, key)}
    if key.stat().st_mode & 0o077:
        raise ConfigError(
            "a private key must be readable by its owner alone",
            code="key-readable-by-others",
            where=str(key),
            value=f"mode {key.stat().st_mode & 0o777:o}",
            remedy=f"chmod 600 {key}",
        )
    for path in (authority, certificate):
        _check_valid(path, contents[path])
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise _unusable(key, error) from error
    return Credentials(contents[certificate], contents[key], contents[authority])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            "a file of runtime.tls cannot be read",
            code="certificate-not-readable",
            where=str(path),
            value=error.strerror,
            remedy="waferstream certificates make FOLDER --host NAME",
        ) from error


def _check_valid(path: Path, pem: bytes) -> None:
    """Refuse what is no certificate, or one that is not valid now."""
    try:
        found = x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise _unusable(path, error) from error
    if not found.not_valid_before_utc <= datetime.now(UTC) <= found.not_valid_after_utc:
        period = f"{found.not_valid_before_utc:%Y-%m-%d} to {found.not_valid_after_utc:%Y-%m-%d}"
        raise _unusable(path, f"valid from {period}")


def _unusable(path: Path, reason: object) -> ConfigError:
    return ConfigError(
        "a file of runtime.tls cannot be used",
        code="certificate-unusable",
        where=str(path),
        value=reason,
        rule="a certificate that is valid now, and its own key, as PEM files",
    )


def _certificate(
    subject: str, issuer: str | x509.Name, key: ec.EllipticCurvePrivateKey, life: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(issuer if isinstance(issuer, x509.Name) else _name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + life)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _names(names: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_general(name) for name in names])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _credentials(
    certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, authority: bytes | None
) -> Credentials:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Credentials(certificate.public_bytes(Encoding.PEM), private, authority)
