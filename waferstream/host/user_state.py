"""What outlives a run, beside the user's own files: a folder, and a secret key.

The state folder is ``$WAFERSTREAM_STATE``, else ``$XDG_STATE_HOME/waferstream``, by default
``~/.local/state/waferstream``. The key seals caches that become code: an artifact that another user
has made, or that was changed, is compiled again and not run.
"""

from __future__ import annotations

import errno
import hmac
import logging
import os
import secrets
import stat
from functools import lru_cache
from pathlib import Path

log = logging.getLogger("waferstream")

STATE_FOLDER = "WAFERSTREAM_STATE"
"""Environment variable that names the state folder."""

_KEY_FILE = "cache.key"
_KEY_BYTES = 32
_OTHERS = 0o077


def state_folder() -> Path:
    """Return the state folder, which may not exist.

    Raises:
        FileNotFoundError: The user has no home folder.
    """
    if own := os.environ.get(STATE_FOLDER):
        return Path(own)
    if home := os.environ.get("XDG_STATE_HOME"):
        return Path(home) / "waferstream"
    try:
        return Path.home() / ".local" / "state" / "waferstream"
    except RuntimeError as error:  # a container without an entry for this user
        raise FileNotFoundError(errno.ENOENT, f"no home folder; set {STATE_FOLDER}") from error


def make_private(folder: Path) -> None:
    """Make a folder that only this user can enter; an older one becomes so.

    Raises:
        OSError: It cannot be made, is a link, or belongs to another user.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise PermissionError(errno.EPERM, "the folder is a link", str(folder))
    if status.st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "the folder belongs to another user", str(folder))
    if status.st_mode & _OTHERS:
        folder.chmod(0o700)


def open_private(path: str | Path, flags: int) -> int:
    """Open a file that, if it is made now, only this user can read; an ``opener`` of ``open``."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def sealed(content: bytes) -> str:
    """Return the hex HMAC-SHA256 (RFC 2104) of content under the key of this user."""
    return hmac.digest(_key(), content, "sha256").hex()


def is_sealed(content: bytes, seal: object) -> bool:
    """Return whether this user has sealed the content."""
    return isinstance(seal, str) and hmac.compare_digest(sealed(content).encode(), seal.encode())


def _key() -> bytes:
    """Return the key of this user; where none can be kept, one for this process."""
    try:
        return _kept_key(state_folder() / _KEY_FILE)
    except OSError as error:
        return _key_of_process(str(error))


@lru_cache(maxsize=1)
def _key_of_process(reason: str) -> bytes:
    log.warning("Caches of this run serve no later one: %s", reason)
    return secrets.token_bytes(_KEY_BYTES)


@lru_cache(maxsize=4)
def _kept_key(path: Path) -> bytes:
    """Return the key in a file, which is made at first use.

    Raises:
        OSError: There is none and it cannot be made, or others can read or write it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    if not path.exists():
        with open(partial, "xb", opener=open_private) as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        try:
            os.link(partial, path)  # unlike a rename, it keeps the key of a process that was first
        except FileExistsError:
            pass
        finally:
            partial.unlink()
    status = path.stat()
    if status.st_uid != os.getuid() or status.st_mode & _OTHERS:
        raise PermissionError(errno.EPERM, "others can read or write the key", str(path))
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise OSError(errno.EINVAL, f"the key must have {_KEY_BYTES} bytes", str(path))
    return key
