"""TCP sockets: ports, and connections under TLS 1.3 (RFC 8446) with certificates on both sides.

A connection is taken only from, and to, a role whose certificate is that of the directory.
"""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress

from swarmx.links.certificates import Credentials
from swarmx.links.endpoint import cannot_listen

HANDSHAKE_S = 10.0
"""How long a peer may take to say who it is."""

_IDLE_S, _PROBE_S, _PROBES = 3, 2, 3  # keepalive of tcp(7): a silent host is lost after 9 s
_SILENT_MS = 1000 * (_IDLE_S + _PROBE_S * _PROBES)


def reserve_port(host: str) -> socket.socket:
    """Return a socket that holds a free port of ``host``, without listening.

    Raises:
        ClusterJobInitError: ``host`` is no address of this host.
    """
    try:
        (family, *_, address), *_ = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        reserved = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise cannot_listen(host, error) from error
    try:
        reserved.bind(address)
    except OSError as error:
        reserved.close()
        raise cannot_listen(host, error) from error
    return reserved


def dial(place: str, own: Credentials, identity: str, timeout_s: float) -> ssl.SSLSocket:
    """Return a connection to the role at an address, whose certificate is ``identity``.

    Raises:
        OSError: Nobody listens there, or the handshake fails.
        ssl.SSLCertVerificationError: The listener shows another certificate.
    """
    host, port = place.rsplit(":", 1)
    context = _context(ssl.PROTOCOL_TLS_CLIENT, own, identity)
    context.check_hostname = own.authority is not None  # else the certificate is of a role
    plain = socket.create_connection((host, int(port)), timeout_s)
    try:
        connection = context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
    if identity_of(connection) != identity:
        connection.close()
        raise ssl.SSLCertVerificationError("the certificate is not that of the directory")
    _set_options(connection)
    return connection


def secure_accepted(plain: socket.socket, own: Credentials, trusted: str) -> ssl.SSLSocket:
    """Return an accepted connection before its handshake; ``trusted`` are certificates of peers."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, own, trusted)
    context.num_tickets = 0  # nobody resumes a session
    connection = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
    connection.settimeout(HANDSHAKE_S)
    _set_options(connection)
    return connection


def identity_of(connection: ssl.SSLSocket) -> str:
    """Return the certificate of the peer as the directory has it."""
    shown = connection.getpeercert(binary_form=True) or b""
    return ssl.DER_cert_to_PEM_cert(shown)


def end_connection(connection: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    """Wake the thread that waits on a connection; it reads the end of the stream."""
    with suppress(OSError):  # the peer has ended it
        socket.socket.shutdown(connection, how)  # SSLSocket's would let go of TLS meanwhile


def _context(side: int, own: Credentials, trusted: str) -> ssl.SSLContext:
    """Return a context that shows the own certificate and demands one of the peer."""
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    authorities = own.authority.decode() if own.authority else (trusted or own.identity)
    context.load_verify_locations(cadata=authorities)
    _load_own(context, own)
    return context


def _load_own(context: ssl.SSLContext, own: Credentials) -> None:
    """Load certificate and key; ``ssl`` reads files only, so they lie in memory without a name."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, own.key + b"\n" + own.certificate)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _set_options(connection: ssl.SSLSocket) -> None:
    """Send at once, and notice a host that has fallen silent."""
    for level, option, value in (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_S),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_MS),
    ):
        connection.setsockopt(level, option, value)
