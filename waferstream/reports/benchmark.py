"""Command-line options and the first fields of a result, shared by benchmarks and validation."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from waferstream.reports.host import describe_host, git_commit

_ROOT = Path(__file__).parents[2]


def positive(text: str) -> int:
    """Parse a whole number from 1; ArgumentTypeError if it is less."""
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"a number must be positive; got {number}")
    return number


def new_file(text: str) -> Path:
    """Parse a path in an existing folder, so that a long measurement does not fail at its end."""
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ArgumentTypeError(f"a path must be a file in an existing folder; got {path}")
    return path


def new_result(question: str) -> dict[str, Any]:
    """Return the first fields of a result: question, date, commit, host and load.

    Call it before measuring: it reads the load that other programs put on the host, and the commit
    that is about to run.
    """
    return {
        "question": question,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "git_commit": git_commit(_ROOT),
        "host": describe_host(torch.__version__),
        "load_1min": os.getloadavg()[0],
    }
