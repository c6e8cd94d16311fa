"""``waferstream batch``: a file of requests, answered as by the service, and again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.runs.served_folder import WAIT_S, serving, train_decoder
from waferstream.cli.main import main
from waferstream.host.locks import locked

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_decoder(tmp_path_factory.mktemp("served"))


def line(name: str, url: str, **body: Any) -> dict[str, Any]:
    body = {"model": "model_dir", "max_tokens": 8} | body
    return {"custom_id": name, "method": "POST", "url": url, "body": body}


def chat(name: str, **changes: Any) -> dict[str, Any]:
    return line(name, CHAT, messages=[{"role": "user", "content": name}], **changes)


def written(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def answers(path: Path) -> list[dict[str, Any]]:
    """Return the answers of a file without what no two runs have in common."""
    found = [json.loads(raw) for raw in path.read_text().splitlines()]
    for each in found:
        body = each["response"]["body"]
        del body["id"], body["created"], body["time_info"]["created"], body["time_info"]["measured"]
    return found


def test_command_and_service_give_one_answer(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also to lines without a seed."""
    source = written(tmp_path / "asked.jsonl", *(chat(f"{i}") for i in range(5)), chat("5", seed=1))
    out = tmp_path / "out.jsonl"
    picture = tmp_path / "batch.svg"
    words = ["batch", str(folder), str(source), "--out", str(out), "--picture", str(picture)]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["emulated"]["resident_s"] < found["emulated"]["streamed_s"]
    assert picture.stat().st_size
    assert (found["requests"], found["completed"], found["failed"]) == (6, 6, 0)
    assert found["output_tokens"] == 48
    with (
        serving(folder, "--files", str(tmp_path / "files")) as url,
        openai.OpenAI(base_url=url, api_key="none", timeout=WAIT_S) as client,
    ):
        file = client.files.create(file=source, purpose="batch")
        client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        while not (results := list(client.files.list(purpose="batch_output"))):
            pass
    assert answers(tmp_path / "files" / f"{results[0].id}.jsonl") == answers(out)
    assert [each["custom_id"] for each in answers(out)] == list("012345")


def test_command_goes_on_where_it_was_stopped(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [chat("a"), line("b", TEXT, prompt="x"), chat("c", temperature=7), chat("d")]
    source, out = written(tmp_path / "asked.jsonl", *lines), tmp_path / "out.jsonl"
    words = ["batch", str(folder), str(source), "--out", str(out)]
    assert main(words) == 1
    assert [each["custom_id"] for each in answers(out)] == ["a", "b", "d"]
    errors = tmp_path / "out.errors.jsonl"
    assert json.loads(errors.read_text())["response"]["status_code"] == 400
    first, second, third = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(first + second[:40])
    assert main(words) == 1
    assert out.read_bytes().startswith(first)
    assert [each["custom_id"] for each in answers(out)] == ["a", "b", "d"]
    assert json.loads(third)["custom_id"] == "d"


@pytest.mark.parametrize(
    ("content", "code"), [("{", "batch-file-invalid"), ("", "batch-file-invalid")]
)
def test_file_that_is_no_batch_is_refused(
    tmp_path: Path, content: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "asked.jsonl"
    source.write_text(content)
    assert main(["batch", "smollm2", str(source), "--out", str(tmp_path / "out.jsonl")]) == 1
    assert code in capsys.readouterr().err


def test_requests_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = written(tmp_path / "asked.jsonl", chat("a"))
    before = source.read_bytes()
    assert main(["batch", "smollm2", str(source), "--out", str(source)]) == 1
    assert "batch-out-is-file" in capsys.readouterr().err
    assert source.read_bytes() == before


def test_missing_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", "smollm2", str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == 1
    assert "none" in capsys.readouterr().err


def test_file_of_answers_belongs_to_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = written(tmp_path / "asked.jsonl", chat("a"))
    with locked(tmp_path / ".out.jsonl.lock", 0):
        assert main(["batch", "smollm2", str(source), "--out", str(tmp_path / "out.jsonl")]) == 1
    assert "batch-out-in-use" in capsys.readouterr().err
