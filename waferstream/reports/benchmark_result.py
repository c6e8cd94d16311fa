"""What a result begins with: the question, and when, where and on which code it was asked."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from waferstream.reports.host import describe_host, git_commit

_ROOT = Path(__file__).parents[2]


def new_result(question: str) -> dict[str, Any]:
    """The head of a result; answers are added to it, and ``write_json`` keeps it.

    Call it before measuring: it looks at the load that others put on the host, and at the commit
    that is about to run.
    """
    return {
        "question": question,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "git_commit": git_commit(_ROOT),
        "host": describe_host(torch.__version__),
        "load_1min": os.getloadavg()[0],
    }
