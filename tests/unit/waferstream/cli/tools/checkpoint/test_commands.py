"""``waferstream checkpoint``: files are described, compared, copied, moved and deleted."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest
import torch

from tests.support.files.checkpoint_files import flip_in, packed_checkpoint, unsealed
from tests.support.host.tools import fields, rows, tool
from waferstream.checkpoint.reader import Reader
from waferstream.cli.main import main
from waferstream.workload.weight_files import write_checkpoint


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return saved(tmp_path / "checkpoint_1.mdl", torch.arange(6.0).view(2, 3), step=1)


def saved(path: Path, weight: torch.Tensor, step: int) -> Path:
    write_checkpoint(path, {"weight": weight, "bias": torch.ones(2)}, {"global_step": step})
    return path


def test_info_describes_a_checkpoint(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = fields(capsys, "checkpoint", "info", first)
    assert (summary["Tensors"], summary["global_step"]) == (2, 1)
    listed = {row["key"]: row for row in rows(capsys, "checkpoint", "info", "-l", first)}
    assert listed["model.weight"]["bytes"] == 24


def test_packed_checkpoint_is_described_verified_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shapes are those of whole tensors, bytes those in the file; a whole copy has equal values."""
    path = packed_checkpoint(tmp_path / "packed.mdl")
    listed = {row["key"]: row for row in rows(capsys, "checkpoint", "info", "-l", path)}
    assert listed["model.w"] == {**listed["model.w"], "shape": [4, 16], "bytes": 12}
    tool(capsys, "checkpoint", "verify", path)
    reader, whole = Reader(path), tmp_path / "whole.mdl"
    weights = {name: torch.from_numpy(reader[f"model.{name}"]) for name in ("w", "b")}
    write_checkpoint(whole, weights, {"global_step": 7})
    out = tool(capsys, "checkpoint", "diff", path, whole, code=1)
    assert "sparsity.mask.w" in out
    assert "model" not in out


def test_diff_names_the_tensors_that_differ(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = saved(tmp_path / "checkpoint_2.mdl", torch.arange(6.0).view(2, 3) * (1 + 1e-6), step=1)
    assert "equal" in tool(capsys, "checkpoint", "diff", first, first)
    out = tool(capsys, "checkpoint", "diff", first, second, code=1)
    assert "model.weight" in out
    assert "model.bias" not in out
    tool(capsys, "checkpoint", "diff", first, second, "--tensor_comparison_op", "allclose")
    other = saved(tmp_path / "other.mdl", torch.ones(3), step=7)
    out = tool(capsys, "checkpoint", "diff", first, other, code=1)
    assert "(2, 3) and float32 (3,)" in out
    assert "global_step" in out


def test_copy_and_move_keep_the_content(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = Path(tool(capsys, "checkpoint", "copy", first, f"{tmp_path}/copies/").strip())
    assert copied == tmp_path / "copies" / first.name
    assert copied.read_bytes() == first.read_bytes()
    assert "[file-exists]" in tool(capsys, "checkpoint", "copy", first, copied, code=1)
    moved = tmp_path / "moved.mdl"
    content = first.read_bytes()
    tool(capsys, "checkpoint", "move", first, moved)
    assert moved.read_bytes() == content
    assert not first.exists()
    tool(capsys, "checkpoint", "delete", moved)
    assert not moved.exists()


def test_what_is_no_local_checkpoint_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("notes")
    for command in ("delete", "info"):
        assert "[checkpoint-damaged]" in tool(capsys, "checkpoint", command, text, code=1)
    assert text.read_text() == "notes"
    err = tool(capsys, "checkpoint", "info", "s3://bucket/checkpoint_1.mdl", code=1)
    assert "[checkpoint-not-local]" in err


def test_verify_finds_a_flipped_bit(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the tensor."""
    assert "2 tensors" in tool(capsys, "checkpoint", "verify", first)
    flip_in(first, torch.arange(6.0).numpy().tobytes())
    assert main(["checkpoint", "verify", str(first)]) == 1
    assert "'model.weight'" in capsys.readouterr().err


def test_seal_accepts_a_change_made_on_purpose(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that h5py has changed is refused until then; one of an earlier format is not."""
    with h5py.File(first, "r+") as file:
        file["model.weight"][0] = 7
    assert main(["checkpoint", "verify", str(first)]) == 1
    assert "checkpoint seal" in capsys.readouterr().err
    again = tmp_path / "again" / "checkpoint_1.mdl"
    tool(capsys, "checkpoint", "seal", first, again)
    assert Reader(again)["model.weight"][0].tolist() == [7, 7, 7]
    assert "no checksums" in tool(capsys, "checkpoint", "verify", unsealed(first), code=1)
