"""Which names are those of this host for itself."""

from __future__ import annotations

import ipaddress


def is_loopback(name: str) -> bool:
    """Return whether a name or an address reaches no other host than this one."""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
