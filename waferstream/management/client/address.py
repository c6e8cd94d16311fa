"""Where the management is, and what shows it who asks: flags, environment, files of the user.

The token is that of ``$WAFERSTREAM_TOKEN``, else that which this user's credentials file has for
the address: ``management start`` writes it there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from waferstream.core.errors import ConfigError
from waferstream.host.files import replacing
from waferstream.host.user_state import make_private, open_private, state_folder

TOKEN = "WAFERSTREAM_TOKEN"

_FILE = "credentials.json"


def token_for(address: str) -> str:
    """Return the token of this user for a management; empty where there is none."""
    return os.environ.get(TOKEN) or _kept().get(address, "")


def keep_token(address: str, token: str) -> Path:
    """Write the token of this user for a management into the credentials file; return its path."""
    path = state_folder() / _FILE
    make_private(path.parent)
    kept = {**_kept(), address: token}
    with (
        replacing(path) as partial,
        open(partial, "w", encoding="utf-8", opener=open_private) as file,
    ):
        json.dump(kept, file, indent=2)
    return path


def _kept() -> dict[str, str]:
    path = state_folder() / _FILE
    try:
        kept = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigError(
            "the file of credentials must be JSON", code="file-not-readable", where=str(path)
        ) from error
    return {str(key): str(value) for key, value in kept.items()} if isinstance(kept, dict) else {}
