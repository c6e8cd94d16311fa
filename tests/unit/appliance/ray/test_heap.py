"""The heap of a role: freed memory stays for the next step, until it is given back."""

from __future__ import annotations

import subprocess
import sys

import pytest

_KEEP_AND_GIVE_BACK = """
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

_OLDER_THREAD = """
import resource
from threading import Event, Thread
from appliance.ray.heap import keep_freed
has_heap, is_kept = Event(), Event()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [b"x" * (SIZE << 20) for _ in range(COUNT)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def work():
    [b"x" * 100_000]
    has_heap.set()
    is_kept.wait()
    print(faults(), faults(), faults())
thread = Thread(target=work)
thread.start()
has_heap.wait()
keep_freed()
is_kept.set()
thread.join()
"""


def numbers_of(program: str) -> list[int]:
    """Run a program in a process of its own: the settings of a heap last as long as a process."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_freed_memory_stays_until_it_is_given_back() -> None:
    """A role that has loaded 64 MiB of weights has them once."""
    kept, left = numbers_of(_KEEP_AND_GIVE_BACK)
    assert kept >= 60
    assert left <= 10


@pytest.mark.parametrize(("count", "size"), [(24, 4), (2, 48)])
def test_heaps_of_an_older_thread_are_kept_as_well(count: int, size: int) -> None:
    """Lanes share the heaps of threads that Ray has started before; no page is faulted twice.

    96 MiB are more than one piece of a heap has, and glibc maps blocks of more than 32 MiB by
    default. Logits of 512 tokens and 16,384 words are one, in every micro-batch again.
    """
    program = _OLDER_THREAD.replace("SIZE", str(size)).replace("COUNT", str(count))
    first, *later = numbers_of(program)
    assert first >= 24_000
    assert max(later) <= 2000
