"""Script that Ray runs to start a worker process: it asks the fork server for one.

A private Ray runs it by its path in place of its own script, with the same words. On a joined one
it is the Python that Ray's script runs, once it has prepared the worker's environment
(``py_executable`` of a runtime environment); then the server's name is its first word. It imports
the standard library only. Where no fork server answers, or the worker needs an environment of its
own, it runs what Ray would have run.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

ADDRESS = "WAFERSTREAM_FORK_SERVER"
"""Environment variable with the fork server's name in the abstract namespace, and Ray's script."""

NO_AGENTS = "WAFERSTREAM_NO_AGENTS"
"""Environment variable of a worker whose raylet has no agents, which prepare environments."""

RAYLET = "RAY_RAYLET_PID"
"""Environment variable with the number of the raylet, which starts this script."""

SERVER_WORD = "--fork-server="
"""Beginning of the first word on a joined Ray, before the fork server's name."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_CONTEXT = "--serialized-runtime-env-context="
_LANGUAGE = "--language="
_PEER = struct.Struct("3i")  # process, user and group (unix(7), SO_PEERCRED)


def main() -> None:
    """Start the worker and end; the worker belongs to the fork server."""
    address, _, script = os.environ.pop(ADDRESS, "").partition(" ")
    words = sys.argv[1:]
    own = [script, *words]
    if words[0].startswith(SERVER_WORD):
        address, own = words[0].removeprefix(SERVER_WORD), words[1:]
        words = own
    request = _request(words)
    if request is not None and _is_forked(address, request):
        return
    _end_with_parent()
    os.execv(sys.executable, [sys.executable, *own])


def _end_with_parent() -> None:
    """Let the kernel kill this process, and what it executes, with its parent.

    Ray's own worker looks for a raylet that has ended for half a minute.
    """
    import ctypes  # noqa: PLC0415  (most need none)

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.environ.get(RAYLET, "").isdecimal() and os.getppid() != int(os.environ[RAYLET]):
        sys.exit(1)


def _request(words: Sequence[str]) -> bytes | None:
    """Return the arguments of the worker, None if Ray's script has to prepare it."""
    own = [word for word in words if not word.startswith((_CONTEXT, _LANGUAGE))]
    language = [word for word in words if word.startswith(_LANGUAGE)]
    contexts = [word.removeprefix(_CONTEXT) for word in words if word.startswith(_CONTEXT)]
    prepares = any(any(json.loads(context or "{}").values()) for context in contexts)
    if prepares or language not in ([], [f"{_LANGUAGE}PYTHON"]) or not own[0].endswith(".py"):
        return None
    request = {
        "words": own,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "oom_score": Path("/proc/self/oom_score_adj").read_text(),
    }
    return json.dumps(request).encode()


def _is_forked(address: str, request: bytes) -> bool:
    """Send the request with the standard streams; return whether the worker was started."""
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(f"\0{address}")
            peer = server.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            if not address or _PEER.unpack(peer)[1] != os.getuid():
                return False
            send(server, request, [0, 1, 2])
            return bool(server.recv(1))
    except OSError:
        return False


def send(server: socket.socket, request: bytes, streams: Sequence[int]) -> None:
    """Send a request with the standard streams of the worker."""
    socket.send_fds(server, [struct.pack("!I", len(request))], streams)
    server.sendall(request)


if __name__ == "__main__":
    main()
