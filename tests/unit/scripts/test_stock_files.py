"""stock_files: micro-batches that files state, compared with those that fit."""

from __future__ import annotations

from pathlib import Path

import pytest

import modelzoo
from scripts.stock_files import Stated, is_near, main, stated_size
from waferstream.config.phases import load_params

GPT2 = Path(modelzoo.__file__).parent / "params" / "gpt2_small.yaml"
BATCH = "batch_size: 112\n"
"""Of its training."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one file, which states a micro-batch of 14 samples."""
    folder = tmp_path / "models" / "configs"
    folder.mkdir(parents=True)
    text = GPT2.read_text(encoding="utf-8")
    comment = "# 112 global = (14 micro)*(2 csx)*(4 grad accum steps)\n"
    (folder / "gpt2.yaml").write_text(text.replace(BATCH, f"{BATCH[:-1]}  {comment}"))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("batch_size: 96  # 96 global = (24 micro)*(4 csx)*(1 grad accum step)", Stated(24, 4)),
        ("batch_size: 96 # 96 global = (24 micro)*(num_csx)*(grad accum steps)", Stated(24, 1)),
        ("batch_size: 96  # as published", None),
    ],
)
def test_size_is_stated_in_a_comment(text: str, stated: Stated | None) -> None:
    """With the number of systems, if that is a number."""
    assert stated_size(load_params(GPT2), text) == stated


def test_neighbours_cut_a_share_by_one_round_more_or_less() -> None:
    """Of 1,080 samples, 99 in 11 rounds, 90 in 12 and 84 in 13."""
    assert [is_near(1080, 1, 90, taken) for taken in (108, 99, 90, 84, 78)] == [
        False, True, True, True, False,
    ]  # fmt: skip


def test_a_line_is_printed_for_each_machine(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--checkout", str(checkout)]) == 0
    header, *rows, _ = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    found = [dict(zip(header, row, strict=True)) for row in rows]
    assert [(row["machine"], row["stated"], row["systems"]) for row in found] == [
        ("CS-2", "14", "2"),
        ("CS-3", "14", "2"),
    ]
    assert {row["verdict"] for row in found} == {"fits"}


def test_checkout_without_stated_sizes_is_an_error(tmp_path: Path) -> None:
    assert main(["--checkout", str(tmp_path)]) == 1
