"""Seeds of random streams that depend on (seed, step, micro-batch, op) and on nothing else.

They never depend on a node, a thread or the order of execution, so that dropout gives the same
bits for every size of cluster.
"""

from __future__ import annotations

import hashlib


def stream_key(seed: int, *coordinates: int | str) -> int:
    """Return a 63-bit seed for the random stream at these coordinates."""
    text = ":".join(str(part) for part in (seed, *coordinates))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
