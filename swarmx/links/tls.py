"""Configuration of TLS on the link between hosts, without the link itself, which needs torch."""

from __future__ import annotations

from pathlib import Path

from waferstream.core.config import Config


class TlsSpec(Config):
    """Files of a host, at the same paths on all hosts; ``waferstream certificates`` makes them."""

    ca: Path
    """Certificate of the authority that has signed those of all hosts."""

    certificate: Path
    """Certificate of this host, for the address at which Ray knows it."""

    key: Path
    """Private key of this host, which only its owner can read."""
