"""Measure what weight servers take in DRAM, with their state in DRAM and in flash.

    python -m benchmarks.memory --flash FOLDER --json benchmarks/results/memory.json

Every arm is a Ray cluster that trains the same steps of one model, so that each server is a process
of its own. The resident memory of a server is sampled while weights are loaded and steps run. What
it has beyond a role without weights, a switch before the first step, is compared with what it owns:
masters, optimizer state and one streamed copy of the weights. With flash it is compared with
``runtime.flash.resident_bytes`` instead; the seconds of a step say what that costs.
"""

from __future__ import annotations

import argparse
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from appliance.coordinator.commands import HashWeights
from appliance.elaboration.elaborate import ClusterSize
from appliance.ray.coordinator import RayCluster
from appliance.spec import ClusterSpec, RuntimeSpec
from benchmarks.streaming.workload import Workload
from benchmarks.training import Training
from memoryx.memory.flash_spec import FlashSpec
from waferstream.core.roles.names import server_name, switch_name
from waferstream.core.units import KIB, MIB, aligned
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

_QUESTION = "How much DRAM do weight servers take?"
_PERIOD_S = 0.02
_COPIES = 4  # fp32 master, two moments, and the streamed copy
_MAPPING = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ ([0-9]+)")  # proc(5): last, the inode
_KINDS = ("RssAnon", "RssShmem", "RssFile")


def resident_bytes(pid: int) -> dict[str, int]:
    """Return the resident memory of a process by kind (proc(5)), and of all kinds together.

    Shared memory counts where it belongs: not Ray's object store, which every process maps, nor
    the slabs of other roles, which are read in place.
    """
    folder = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    by_kind = {kind: int(status[kind].split()[0]) * KIB for kind in _KINDS}
    own, is_foreign = _blocks(folder), False
    for line in (folder / "smaps").read_text().splitlines():
        if found := _MAPPING.match(line):
            is_slab = "/memfd:waferstream" in line
            is_foreign = "/plasma" in line or (is_slab and int(found[1]) not in own)
        elif is_foreign and line.startswith("Rss:"):
            by_kind["RssShmem"] -= int(line.split()[1]) * KIB
    return {**by_kind, "all": sum(by_kind.values())}


def _blocks(folder: Path) -> set[int]:
    """Return the inodes of the blocks of shared memory that a process holds.

    Python's mapping of a file keeps a descriptor of it. Its reader has no other, its owner has.
    """
    inodes = Counter[int]()
    for descriptor in (folder / "fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            inodes[descriptor.stat().st_ino] += 1
    return {inode for inode, count in inodes.items() if count > 1}


@contextmanager
def sampling(pids: Mapping[str, int], like: int) -> Iterator[dict[str, dict[str, int]]]:
    """Yield the largest memory of each process beyond that of process ``like``, by kind.

    It is complete when the block ends.
    """
    without = resident_bytes(like)
    most = {name: dict.fromkeys(without, 0) for name in pids}
    is_over = threading.Event()

    def sample() -> None:
        while not is_over.wait(_PERIOD_S):
            for name, pid in pids.items():
                now = resident_bytes(pid)
                grown = {kind: now[kind] - without[kind] for kind in now}
                most[name] = max(most[name], grown, key=lambda one: one["all"])

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        is_over.set()
        thread.join()


def measure(
    workload: Workload, num_servers: int, steps: int, flash: FlashSpec | None
) -> dict[str, Any]:
    """Train; return growth of each server, seconds of each step, and the digest of the weights."""
    spec = ClusterSpec(runtime=RuntimeSpec(kind="ray", flash=flash))
    size = ClusterSize(1, num_servers=num_servers, flash=flash)
    training = Training(workload, size, spec)
    try:
        assert isinstance(training.cluster, RayCluster)
        presences = training.cluster.presences
        servers = [server_name(index) for index in range(num_servers)]
        seconds = []
        pids = {name: presences[name].pid for name in servers}
        with sampling(pids, like=presences[switch_name(0)].pid) as growth:
            training.load()
            for _ in range(steps):
                start_s = time.perf_counter()
                training.run(1)
                seconds.append(time.perf_counter() - start_s)
        return {"growth": growth, "step_s": seconds, "digest": training.cluster.do(HashWeights())}
    finally:
        training.cluster.shutdown()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    workload = Workload(
        options.hidden, options.layers, options.vocab, options.tokens, options.batch, "fp32", 2
    )
    result = new_result(_QUESTION)
    owned_bytes = _COPIES * 4 * workload.num_parameters() // options.servers
    bound_bytes = owned_bytes * options.percent // 100
    arms: dict[str, FlashSpec | None] = {"dram": None}
    if options.flash is not None:
        arms["flash"] = FlashSpec(path=options.flash, resident_bytes=bound_bytes)
    found = {
        name: measure(workload, options.servers, options.steps, flash)
        for name, flash in arms.items()
    }
    assert len({arm["digest"] for arm in found.values()}) == 1, "flash changed a weight"
    rows = [("arm", "server", "MiB", *_KINDS, "of a server's part", "s per step")]
    for name, arm in found.items():
        step_s = median(arm["step_s"][1:])
        for server, grown in arm["growth"].items():
            kinds = (f"{grown[kind] / MIB:.0f}" for kind in _KINDS)
            share = f"{grown['all'] / owned_bytes:.3f}"
            rows.append((name, server, f"{grown['all'] / MIB:.0f}", *kinds, share, f"{step_s:.2f}"))
    print("\n".join(aligned(rows)))
    print(f"a server's part: {owned_bytes / MIB:.0f} MiB; in flash: {bound_bytes / MIB:.0f} MiB")
    if options.json is not None:
        figures = {"owned_bytes": owned_bytes, "bound_bytes": bound_bytes, "arms": found}
        write_json(options.json, {**result, "workload": asdict(workload), **figures})
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=_QUESTION, allow_abbrev=False)
    parser.add_argument("--hidden", type=positive, default=512)
    parser.add_argument("--layers", type=positive, default=8)
    parser.add_argument("--vocab", type=positive, default=4096)
    parser.add_argument("--tokens", type=positive, default=128, help="of a sample")
    parser.add_argument("--batch", type=positive, default=2, help="samples of a step")
    parser.add_argument("--servers", type=positive, default=2, help="weight servers")
    parser.add_argument("--steps", type=positive, default=5)
    parser.add_argument("--flash", type=Path, help="folder for an arm with flash")
    parser.add_argument("--percent", type=positive, default=25, help="of a part in DRAM then")
    parser.add_argument("--json", type=new_file, help="file for the result")
    return parser


if __name__ == "__main__":
    sys.exit(main())
