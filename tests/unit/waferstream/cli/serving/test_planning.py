"""``serve --plan`` and ``serve --simulate`` at the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.errors import raises
from waferstream.cli.app import call
from waferstream.cli.main import main
from waferstream.core.errors import ApplianceResourceExhausted, ConfigError


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["serve", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_plan_of_a_published_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """70B lies on four wafers; the picture has the format of its name."""
    for end, begin in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        path = tmp_path / f"plan{end}"
        plan = _json(capsys, "llama-3.1-70b", "--plan", f"--out={path}")
        assert path.read_bytes().startswith(begin)
    assert (plan["system"], plan["wafers"]) == ("CS-3", 4)
    assert sum(plan["token_ps"].values()) == pytest.approx(1e12 / plan["tokens_per_s"])


def test_plan_of_a_folder_needs_no_weights(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Only config.json is read."""
    config = {
        "model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    plan = _json(capsys, str(tmp_path), "--plan", "--system=CS-2")
    assert (plan["system"], plan["wafers"], plan["context"]) == ("CS-2", 1, 256)
    assert plan["weight_bytes"] == 2 * 2 * (64 * (64 + 64 + 32 + 32) + 3 * 64 * 128)


def test_text_has_a_map_and_other_sides(capsys: pytest.CaptureFixture[str]) -> None:
    """With the names of all layers."""
    assert main(["serve", "llama-3.1-8b", "--plan"]) == 0
    found = capsys.readouterr().out
    assert all(word in found for word in ("wafer 1", "embedding", "head", "users at full speed"))


@pytest.mark.parametrize("load", ["--users=3", "--rate=5", "--requests={record}"])
def test_simulation_of_one_load(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, load: str
) -> None:
    """Users, a stream, or a record."""
    record = tmp_path / "requests.jsonl"
    record.write_text('{"arrival_s": 0, "prompt_tokens": 9, "completion_tokens": 4}\n' * 3)
    word = load.format(record=record)
    found = _json(capsys, "gpt-oss-120b", "--simulate", word, f"--out={tmp_path / 'load.png'}")
    (point,) = found["points"]
    assert ("record" not in load) or (found["prompt"], found["output"]) == (9, 4)
    assert point["tokens_per_s"] > 0
    assert point["first_token_p50_s"] <= point["first_token_p99_s"]
    assert (tmp_path / "load.png").exists()


def test_what_does_not_fit_is_said_with_what_would() -> None:
    """More wafers, or a shorter context."""
    with raises(ApplianceResourceExhausted, "decoder-exceeds-service") as refused:
        call(["serve", "llama-3.1-70b", "--plan", "--wafers=4", "--context=131072"], Path())
    assert "allow 5 wafers" in str(refused.value.remedy)
    assert "a context of at most" in str(refused.value.remedy)


def test_unknown_model_is_refused_with_the_nearest_name() -> None:
    """It is neither a place nor published."""
    with raises(ConfigError, "decoder-name-unknown") as refused:
        call(["serve", "lama-3.1-8b", "--plan"], Path())
    assert "llama-3.1-8b" in str(refused.value.remedy)


def test_wafers_with_defects_have_room_for_less(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The snake runs over the part of the grid that works."""
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("machine: {system: {name: CS-3, defects: {pe_yield: 0.999}}}\n")
    whole = _json(capsys, "llama-3.1-70b", "--plan")
    working = _json(capsys, "llama-3.1-70b", "--plan", f"--cluster={cluster}")
    assert working["wafers"] > whole["wafers"]
    assert working["tokens_per_s"] < whole["tokens_per_s"]


def test_named_system_wins_over_another_of_the_cluster(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is as published, and the numbers that are left out are told."""
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("machine: {system: {name: CS-3, clock_hz: 500000000}}\n")
    words = ("llama-3.1-8b", "--plan")
    published = _json(capsys, *words, "--system=CS-2")
    assert not caplog.records
    assert _json(capsys, *words, "--system=CS-2", f"--cluster={cluster}") == published
    assert "clock_hz" in caplog.text
    slow = _json(capsys, *words, "--system=CS-3", f"--cluster={cluster}")
    assert slow["tokens_per_s"] < _json(capsys, *words, "--system=CS-3")["tokens_per_s"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--plan --out=plan.txt", "out-of-range"),
        ("--plan --side=7", "side-does-not-fit"),
        ("--users=5", "argument-without-plan"),
        ("--json", "argument-without-plan"),
        ("--system=CS-2", "argument-without-plan"),
        ("--simulate --prompt_tokens=0", "out-of-range"),
    ],
)
def test_wrong_flags_are_refused(words: str, code: str) -> None:
    """By name."""
    with raises(ConfigError, code):
        call(["serve", "llama-3.1-8b", *words.split()], Path())


@pytest.mark.parametrize(
    "words",
    [
        *("--plan --wafers=0", "--plan --context=0", "--simulate --rate=0"),
        *("--simulate --users=0", "--simulate --users=10001"),
    ],
)
def test_numbers_out_of_range_are_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    flag, _, value = words.rsplit(maxsplit=1)[-1].partition("=")
    with pytest.raises(SystemExit) as ended:
        call(["serve", "llama-3.1-8b", *words.split()], Path())
    assert ended.value.code == 2
    complaint = capsys.readouterr().err
    assert f"'{flag}'" in complaint
    assert f"got '{value}'" in complaint
