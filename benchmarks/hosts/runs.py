"""Runs of ``run.py`` on hosts in miniature: on a slow link, and with a host that falls silent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import yaml

from benchmarks.hosts.miniature import MiniatureHosts
from benchmarks.hosts.network import REPOSITORY
from waferstream.reports.run.summary import SUMMARY_NAME

_SYSTEMS = 6
_STEPS = 60
_STEPS_TO_CHECKPOINT = 10
_STEP_OF_LOSS = 15
_STEP = "Step="
_GPT = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "filter_size": 128,
    "max_position_embeddings": 32,
}
_DATA = {"data_processor": "TextDataProcessor", "path": "stdlib", "max_sequence_length": 32}

_DELAY_MS, _MEGABITS = 20, 100


def slow_link(hosts: MiniatureHosts) -> dict[str, Any]:
    """Return the cost of a slow link to the last host, and the part that the run reports.

    ``ratio`` is the time by which roles wait longer for the links of that host, in both directions,
    than in a run without a slow link, over the time by which the whole run takes longer. Waits of
    both directions overlap, so it is above 1 if nothing is missing.

    Raises:
        RuntimeError: The runs have different weights.
    """
    slow = hosts.count - 1
    hosts.run(0, _command(hosts, "fast"))
    with hosts.network.slow_link(slow, _DELAY_MS, _MEGABITS):
        hosts.run(0, _command(hosts, "slow"))
    row: dict[str, Any] = {}
    weights = set()
    for name in ("fast", "slow"):
        summary = _summary(hosts, name)
        weights.add(summary["weights_sha256"])
        row[f"{name}_s"] = summary["measured"]["seconds"]
        waits = summary["link_waits"].items()
        address = hosts.network.address(slow)
        row[f"{name}_waits_s"] = sum(wait_s for link, wait_s in waits if address in link)
    if len(weights) > 1:
        raise RuntimeError(f"the weights differ: {weights}")
    longer_s = row["slow_waits_s"] - row["fast_waits_s"]
    return row | {"ratio": longer_s / (row["slow_s"] - row["fast_s"])}


def silent_host(hosts: MiniatureHosts) -> dict[str, Any]:
    """Return the seconds from the silence of the last host to the end of the run, and to go on.

    The same command goes on right after its end, until its first step. The silent host does not
    come back.

    Raises:
        RuntimeError: A run fails for another reason, or has other weights at its end.
    """
    hosts.run(0, _command(hosts, "undisturbed"))
    command = _command(hosts, "disturbed")
    with hosts.start(0, command) as process:
        seen = _read_until(process, f"{_STEP}{_STEP_OF_LOSS},")
        hosts.network.cut(hosts.count - 1)
        begin = perf_counter()
        output, _ = process.communicate()
        noticed_s = perf_counter() - begin
    if "[host-lost]" not in output:
        raise RuntimeError(f"the run has not ended by the loss:\n{seen}{output}")
    begin = perf_counter()
    with hosts.start(0, command) as process:
        seen = _read_until(process, _STEP)
        resumed_s = perf_counter() - begin
        output, _ = process.communicate()
    weights = [_summary(hosts, name)["weights_sha256"] for name in ("undisturbed", "disturbed")]
    if process.returncode or len(set(weights)) > 1:
        raise RuntimeError(f"the run does not go on to the same weights:\n{seen}{output}")
    return {"hosts": hosts.count, "noticed_s": noticed_s, "resumed_s": resumed_s}


def _command(hosts: MiniatureHosts, name: str) -> list[str]:
    """Write the files of a run into the first host's /tmp, and return its command."""
    folder = hosts.folder(0) / name
    folder.mkdir()
    params = yaml.safe_load((REPOSITORY / "params.yaml").read_text(encoding="utf-8"))
    init = params["trainer"]["init"]
    init["model"] |= _GPT
    init["loop"] = {"max_steps": _STEPS}
    init["checkpoint"] = {"steps": _STEPS_TO_CHECKPOINT}
    init["logging"] = {"log_steps": 1}
    params["trainer"]["fit"] = {"train_dataloader": {**_DATA, "batch_size": 12}}
    runtime = {"address": "auto", "placement": "SPREAD"}
    files = {"params": params, "cluster": {"runtime": runtime}}
    for key, content in files.items():
        (folder / f"{key}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    flags = [f"--{key}={folder / key}.yaml" for key in files]
    program = [sys.executable, str(REPOSITORY / "run.py"), "--mode=train", *flags]
    return [*program, f"--num_csx={_SYSTEMS}", f"--model_dir={folder / 'model_dir'}"]


def _read_until(process: subprocess.Popen[str], text: str) -> str:
    """Read the output of a run until a line has a text; return what was read."""
    assert process.stdout is not None, "it is a pipe"
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return "".join(seen)
    raise RuntimeError(f"the run has ended:\n{''.join(seen)}")


def _summary(hosts: MiniatureHosts, name: str) -> dict[str, Any]:
    """Return the summary of a run as plain data."""
    file: Path = hosts.folder(0) / name / "model_dir" / SUMMARY_NAME
    summary: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return summary
