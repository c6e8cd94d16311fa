"""Every kept result says what was asked, when, where and on which code."""

import json

import torch

from waferstream.reports.benchmark_result import new_result
from wsc.core.files import write_json


def test_a_result_tells_its_question_and_its_host(tmp_path):
    """Numbers of another host or commit are not to be compared unawares."""
    write_json(tmp_path / "result.json", new_result("how fast?") | {"answer": (1.5, 2.5)})
    kept = json.loads((tmp_path / "result.json").read_text())
    assert list(kept) == ["question", "date", "git_commit", "host", "load_1min", "answer"]
    assert kept["question"] == "how fast?"
    assert kept["host"]["torch"] == torch.__version__
    assert kept["answer"] == [1.5, 2.5]
