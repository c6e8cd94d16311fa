"""``serve --mgmt_address``: what is submitted to an appliance."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from waferstream.cli.main import main
from waferstream.management.model.workflow import Submission


def test_service_is_a_workflow_with_the_words_of_its_command(tmp_path: Path) -> None:
    submitted: list[Submission] = []
    submit = "waferstream.management.client.submitting.submit"
    with patch(submit, lambda _address, submission, *_: submitted.append(submission)):
        words = ["serve", str(tmp_path), "--wafers", "2", "--port", "0", "--detach"]
        assert main([*words, "--mgmt_address", "127.0.0.1:9000"]) == 0
    (asked,) = submitted
    assert asked.words == ("serve", str(tmp_path.resolve()), "--wafers", "2", "--port", "0")
    assert (asked.num_csx, asked.is_service, asked.is_detached) == (2, True, True)
