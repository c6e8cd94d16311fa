"""Run the same programs with the vendor's CPU package and here, and print the largest differences.

    python -m scripts.compare_vendor --python /path/to/environment/bin/python

The environment is one of its own (``pip install cerebras_pytorch==2.10.0 'setuptools<70'`` under
Python 3.11, 5.5 GB) and no dependency of this project. Each of the ``programs`` imports
``cerebras.pytorch`` only; here it runs through ``waferstream exec``, on the local cluster and on
CPU. The exit code is 1 if an unknown difference exceeds the precision of its program, or if a
program fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from waferstream.core.errors import WaferStreamError

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"

PRECISION = {
    "optimizers": 5e-6,  # ten steps in fp32 on weights below 1, in another order of operations
    "sparsity": 2e-5,  # as optimizers, with losses up to 3
    "schedules": 1e-6,  # the vendor computes in fp32, rates are below 1
    "metrics": 1e-6,  # counts are exact; the vendor divides in fp32
    "data": 0.0,
}
"""The largest absolute difference of each program that is due to rounding."""

KNOWN = {
    "nadam": "the product of momenta of the next step has that of this step twice at the vendor",
    "nadam-options": "as nadam",
    "adafactor-beta": "the vendor has no beta1",
    "muon": "the vendor's Muon ends with a TypeError on CPU",
    "muon-plain": "as muon",
    "linear-cycle": "the vendor's value stays at its end after the first decay",
    "polynomial-cycle": "as linear-cycle",
    "restarts": "the vendor's value stays constant in every period after the first",
    "restarts-longer": "the vendor has no T_mult",
    "loop-activations": "on CPU the vendor runs step closures after every step, not as on CSX",
    "loop-both": "as loop-activations",
    "sampler-epochs": "the vendor takes an incomplete last batch into the next epoch",
    "rigl-cosine": "on CPU the vendor's drop fraction stays at its first value",
    "mean-weight": "its update multiplies two results of a micro-batch, which CPU does not have",
}
"""Cases that differ by decision: most follow the published rule, as torch or Keras do."""

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Difference:
    """How far one case of a program differs from the vendor's."""

    case: str
    largest: float
    """Largest absolute difference of all values; infinite where they cannot be compared."""

    where: str
    """The array with the largest difference, or why there is none."""


class ProgramFailedError(WaferStreamError):
    """A program that ended without results."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and compare all programs on all devices; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", required=True, help="interpreter of the vendor's environment")
    parser.add_argument("--programs", nargs="+", choices=PRECISION, default=list(PRECISION))
    parser.add_argument("--devices", nargs="+", choices=("CPU", "CSX"), default=["CPU", "CSX"])
    parser.add_argument("--num_csx", type=int, default=1)  # some batches have one sample
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        cluster = Path(folder) / "cluster.yaml"
        cluster.write_text("runtime: {kind: local}\n")
        here = [sys.executable, "-m", "waferstream", "exec", f"--cluster={cluster}"]
        here.append(f"--num_csx={options.num_csx}")
        try:
            verdicts = [
                verdict
                for program in options.programs
                for verdict in _compared(
                    [options.python], here, program, options.devices, Path(folder)
                )
            ]
        except ProgramFailedError as error:
            print(error, file=sys.stderr)
            return 1
    return int("DIFFERS" in verdicts)


def _compared(
    there: list[str], here: list[str], program: str, devices: Sequence[str], folder: Path
) -> Iterator[str]:
    """Run a program there, and here on all devices; print each difference and yield its verdict."""
    theirs = _results(there, program, "CPU", folder)
    for device in devices:
        ours = _results(here, program, device, folder)
        print(f"{program} on {device}, precision {PRECISION[program]:g}")
        for difference in differences(ours, theirs):
            verdict = judged(difference, PRECISION[program])
            print(_line(difference, verdict))
            yield verdict


def differences(ours: Arrays, theirs: Arrays) -> Iterator[Difference]:
    """Yield the difference of every case, of which arrays are named ``<case>/<name>``."""
    names = {*ours, *theirs}
    for case in dict.fromkeys(name.split("/")[0] for name in [*theirs, *ours]):
        own = sorted(name for name in names if name.split("/")[0] == case)
        yield max(
            (_difference(case, name, ours, theirs) for name in own), key=lambda each: each.largest
        )


def _difference(case: str, name: str, ours: Arrays, theirs: Arrays) -> Difference:
    """Return the difference of one array."""
    short = name.removeprefix(f"{case}/")
    if short == "error" and name in ours and name in theirs:
        return Difference(case, 0.0, "both refuse")
    if name not in ours or name not in theirs:
        has, values = ("here", ours) if name in ours else ("there", theirs)
        text = f": {values[name]}" if short == "error" else ""
        return Difference(case, float("inf"), f"{short} only {has}{text}")
    mine, other = ours[name].astype(np.float64), theirs[name].astype(np.float64)
    if mine.shape != other.shape:
        return Difference(
            case, float("inf"), f"{short}: shape {mine.shape} here, {other.shape} there"
        )
    with np.errstate(invalid="ignore"):
        distance = np.where(mine == other, 0.0, np.abs(mine - other))
    distance[np.isnan(mine) & np.isnan(other)] = 0.0
    largest = float(np.nan_to_num(distance, nan=np.inf).max(initial=0.0))
    return Difference(case, largest, short if largest else "")


def judged(difference: Difference, precision: float) -> str:
    """Return the verdict on a difference: ``equal``, ``close``, ``known`` or ``DIFFERS``."""
    if difference.largest <= precision:
        return "close" if difference.largest else "equal"
    return "known" if difference.case in KNOWN else "DIFFERS"


def _line(difference: Difference, verdict: str) -> str:
    text = KNOWN[difference.case] if verdict == "known" else difference.where
    return f"  {difference.case:28} {difference.largest:9.2e}  {verdict:7}  {text}"


def _results(python: list[str], program: str, device: str, folder: Path) -> Arrays:
    """Run a program and return its arrays; ProgramFailedError with its last lines."""
    out = folder / "results.npz"
    out.unlink(missing_ok=True)
    words = [*python, str(PROGRAMS / f"{program}.py"), f"--device={device}", f"--out={out}"]
    # Both sides add on one thread, and neither finds modules of the other on the path.
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    if python[0] == sys.executable:
        variables["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        words, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    if not out.is_file():
        raise ProgramFailedError(
            "a program must write its results",
            code="program-without-results",
            where=" ".join(words),
            value="\n".join(done.stderr.splitlines()[-5:]),
        )
    with np.load(out) as arrays:
        return dict(arrays)


if __name__ == "__main__":
    sys.exit(main())
