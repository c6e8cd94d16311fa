"""The heap of a role: freed memory stays for the next step, until it is given back."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
from appliance.ray.heap import give_back_freed, keep_freed
def resident():
    (line,) = (line for line in open("/proc/self/status") if line.startswith("RssAnon"))
    return int(line.split()[1]) // 1024
keep_freed()
before = resident()
blocks = [b"x" * (4 << 20) for _ in range(16)]  # 64 MiB
del blocks
kept = resident() - before
give_back_freed()
print(kept, resident() - before)
"""


def test_freed_memory_stays_until_it_is_given_back() -> None:
    """In a process of its own: the settings of a heap last as long as the process."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=True)
    kept, left = map(int, done.stdout.split())
    assert kept >= 60
    assert left <= 10
