"""Surrogates of cluster jobs at Slurm: a step each, so that Slurm's accounting has them.

The vendor's client does the same (cerebras_appliance 2.10, ``cluster/surrogate_job.py``): in an
allocation of ``salloc`` or ``sbatch``, but not under ``srun``.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess

log = logging.getLogger("waferstream")

_CODE = 'read -r code && exit "$code"; exit 1'
"""What a step runs: it lives as long as its job, and fails where that ends without a word."""

_END_S = 10.0


class Surrogate:
    """A step of this process's allocation with the name of a cluster job, which takes no CPU."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._step = subprocess.Popen(
            [
                "srun",
                f"--job-name={job}",
                "--nodes=1",
                "--ntasks=1",
                "--overlap",
                "sh",
                "-c",
                _CODE,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is for the run
            text=True,
        )

    def end(self, exit_code: int) -> None:
        """End the step as the job has ended."""
        try:
            self._step.communicate(f"{exit_code}\n", timeout=_END_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            log.warning("Slurm does not end the step of %s: %s", self._job, error)
            self._step.kill()
            self._step.wait()


def start_surrogate(job: str) -> Surrogate | None:
    """Start the surrogate of a cluster job; None outside of an allocation, and under ``srun``."""
    if "SLURM_JOB_ID" not in os.environ or shutil.which("srun") is None:
        return None
    if "SLURM_STEP_ID" in os.environ:
        log.warning(
            "Slurm gets no step for %s: start the run in sbatch or salloc, not in srun", job
        )
        return None
    return Surrogate(job)
