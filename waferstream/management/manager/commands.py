"""The command of a workflow: what its user has typed, with the systems that it was given."""

from __future__ import annotations

from pathlib import Path

from waferstream.core.errors import ConfigError
from waferstream.management.model.workflow import Submission

OF_CLIENT = (
    "--mgmt_address", "--credentials_path", "--num_csx", "--min_num_csx", "--session",
    "--model_dir", "-o",
)  # fmt: skip
"""Flags that a client removes, since the management gives their values."""

ATTACHED = ("cluster", "serve", "--once")
"""The command that lends a cluster to one program elsewhere."""

CREDENTIALS = "cluster.json"
"""The file in which it says who may use the cluster."""


def command_of(
    submission: Submission, num_csx: int, model_dir: Path, compile_only: bool = False
) -> tuple[str, ...]:
    """Return what follows ``waferstream`` on the command line of a launched process.

    Raises:
        ConfigError: The command cannot be launched, or has a value that the management gives.
    """
    words = submission.words
    given = [word for word in words if word.partition("=")[0] in OF_CLIENT]
    if given and words[0] != "exec":
        raise ConfigError(
            "the command of a workflow must leave to the management what that gives",
            code="not-allowed",
            where="submission.words",
            value=" ".join(given),
            remedy="submit num_csx as a field; files appear in the folder of the run",
        )
    systems = ("--num_csx", str(num_csx))
    match words[0]:
        case "exec":
            return ("exec", *systems, *words[1:])
        case "serve":
            return words
        case "cluster":
            return (*words, "--credentials", str(model_dir / CREDENTIALS))
    stage = ("--compile_only",) if compile_only else ()
    return (*words, *systems, "--model_dir", str(model_dir), *stage)
