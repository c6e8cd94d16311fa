"""Record what a change of structure must not change, and compare it afterwards.

    python -m scripts.witness --record    # before: writes scripts/witness.json
    python -m scripts.witness             # after: the exit status is 1 if something differs
    python -m scripts.witness --faults 60

    weights      hashes of the default training and of small ones, with every picosecond of theirs
    simulation   everything that ``--simulate`` predicts for six params files
    faults       the weights after random faults (benchmarks.chaos)

Weights differ between families of processors, so there is a record for each; simulations do not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import cstorch
from appliance.coordinator.commands import HashWeights, Run
from tests.support.programs.cstorch_program import cluster_of
from tests.support.runs.tiny_training import (
    GPT,
    LLAMA,
    WIDE_GPT,
    Shape,
    init_config,
    train_on_cluster,
)
from waferstream.core.program.program import ProgramKind
from waferstream.host.files import write_json

_FILE = Path(__file__).with_suffix(".json")
_MODELS = {"gpt": GPT, "llama": LLAMA, "wide gpt": WIDE_GPT}
_SHAPES = {"one system": Shape(), "seven systems": Shape(7, fan_out=2, servers=3)}
_SIMULATED = [
    "params.yaml",
    *(
        f"modelzoo/params/{name}.yaml"
        for name in ("bert_large", "dit_2b", "esm2_35m", "gpt3_1.3b", "llama2_70b")
    ),
]
_ANY = "any processor"
_LIMIT_S = 1800


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, or compare with the record; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--record", action="store_true", help=f"write {_FILE.name}")
    parser.add_argument("--faults", type=int, default=0, help="random faults to survive")
    typed = parser.parse_args(arguments)
    logging.getLogger("waferstream").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    records: dict[str, dict[str, str]] = json.loads(_FILE.read_text()) if _FILE.exists() else {}
    status = 0
    for name, hash_of in witnesses(typed.faults):
        own = records.setdefault(_ANY if name.startswith("simulation") else processor(), {})
        found, before = hash_of(), own.get(name)
        same = before in {None, found}
        print(f"{name:40} {found[:16]} {'new' if before is None else 'same' if same else before}")
        sys.stdout.flush()
        status |= not same
        own[name] = found if typed.record else before or found
    if typed.record:
        write_json(_FILE, records)
        return 0
    return status


def processor() -> str:
    """Return the family of processors to which the bits of weights belong."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    vendor = next((x.split()[-1] for x in lines if x.startswith("vendor_id")), platform.machine())
    return f"{vendor} {torch.backends.cpu.get_cpu_capability()}"


def witnesses(num_faults: int) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the name of each witness, and what returns its hash."""
    for model, sizes in _MODELS.items():
        for where, shape in _SHAPES.items():
            yield f"weights of {model}, {where}", lambda m=sizes, s=shape: trained(m, s)  # type: ignore[misc]
    yield "weights of make train", default_training
    for path in _SIMULATED:
        yield f"simulation of {Path(path).stem}", lambda p=path: simulated(p)  # type: ignore[misc]
    if num_faults:
        yield f"weights after {num_faults} faults", lambda: after_faults(num_faults)


def trained(model: dict[str, Any], shape: Shape) -> str:
    """Return the hash of losses, weights and picoseconds of a small training."""

    def inspect(backend: cstorch.Backend) -> str:
        steps = cluster_of(backend).do(Run(ProgramKind.TRAIN, 4, 5))
        seen = [[repr(step.values), repr(step.timing)] for step in steps]
        return _hash_of([seen, cluster_of(backend).do(HashWeights())])

    return str(train_on_cluster(init_config(model), shape, 3, inspect=inspect))


def default_training() -> str:
    """Return the hash of the weights of ``make train``, which it prints last."""
    with tempfile.TemporaryDirectory() as folder:
        printed = _run("run.py", "--params", "params.yaml", "--num_csx=4", "--model_dir", folder)
    return next(line.split()[-1] for line in reversed(printed.splitlines()) if "SHA" in line)


def simulated(params: str) -> str:
    """Return the hash of all that a simulation of four systems says."""
    with tempfile.TemporaryDirectory() as folder:
        _run("run.py", "--params", params, "--num_csx=4", "--simulate", "--model_dir", folder)
        found = json.loads((Path(folder) / "simulation" / "simulation.json").read_text())
    for name in ("commit", "configuration"):  # they name this commit and this folder
        del found[name]
    del found["simulation"]["curve_s"]  # how long it took
    return _hash_of(found)


def after_faults(count: int) -> str:
    """Return the hash of the weights after random faults."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chaos.json"
        _run("-m", "benchmarks.chaos", "--faults", str(count), "--seed", "1", "--json", str(path))
        return str(json.loads(path.read_text())["digest"])


def _run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def _hash_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
