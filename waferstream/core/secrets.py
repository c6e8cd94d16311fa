"""Secrets that callers show: they are random, shown once, and kept as their hash."""

from __future__ import annotations

import hashlib
import secrets


def new_secret(prefix: str) -> str:
    """Return a new secret; by its prefix, scanners of repositories can find it."""
    return prefix + secrets.token_urlsafe(32)


def digest_of(secret: str) -> str:
    """Return what a store keeps of a secret: SHA-256, as hexadecimal digits.

    A secret has 256 random bits, so that no slower hash is needed.
    """
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
