"""The token with which processes of Ray show that they belong together.

Whoever has it runs code as the user of the instance. A private instance gets one of its own, which
is in the memory and the environment of its processes alone. Joined ones share a file in the home
folder, which Ray makes readable for all users.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ray._raylet import (  # type: ignore[attr-defined]  # its stub leaves both out
    AuthenticationTokenLoader,
    Config,
)

log = logging.getLogger("waferstream")

_TOKEN_BYTES = 32
_OTHERS = 0o077


@contextmanager
def own_token() -> Iterator[None]:
    """Give this process, and those that it starts in the block, a new token."""
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(_TOKEN_BYTES)}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    _read_again()
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if value is not None})
        _read_again()


def close_token_file() -> None:
    """Let only this user read the token that joined instances share, and enter its folder."""
    with suppress(OSError, RuntimeError):  # no home folder, or no file
        path = Path.home() / ".ray" / "auth_token"
        modes = {place: place.stat().st_mode for place in (path, path.parent)}
        for place, mode in modes.items():
            if mode & _OTHERS and place.stat().st_uid == os.getuid():
                place.chmod(stat.S_IMODE(mode) & ~_OTHERS)
        if all(mode & _OTHERS for mode in modes.values()):
            log.warning("Other users could read %s until now: make a new token", path)


def _read_again() -> None:
    """Let Ray forget what it has read of the environment."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
