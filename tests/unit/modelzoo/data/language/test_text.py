"""Text is predicted byte by byte, and evaluated on a part that training never sees."""

import sysconfig
from pathlib import Path

import pytest
import torch

from modelzoo.data.language.text import TextDataProcessor, stdlib_files
from tests.support.errors import raises
from waferstream.core.errors import DataError
from waferstream.workload.data import BatchSource


def open_text(path: Path | str, **keys: object) -> BatchSource:
    defaults = {
        "data_processor": "TextDataProcessor",
        "path": str(path),
        "batch_size": 1,
        "max_sequence_length": 4,
        "eval_fraction": 0,
        "shuffle": False,
    }
    return TextDataProcessor.model_validate(defaults | keys).source()


def text_of(source: BatchSource, key: str, step: int) -> bytes:
    return bytes(source.batch(step)[key].flatten().tolist())


def test_each_byte_is_predicted_once(tmp_path: Path) -> None:
    """Windows touch by one byte: the last label of one is the first input of the next."""
    (tmp_path / "a.txt").write_bytes(b"abcdefghi")
    source = open_text(tmp_path / "a.txt")
    assert len(source) == 2
    assert [text_of(source, "input_ids", step) for step in range(2)] == [b"abcd", b"efgh"]
    assert [text_of(source, "labels", step) for step in range(2)] == [b"bcde", b"fghi"]


def test_files_are_joined_in_sorted_order_by_a_newline(tmp_path: Path) -> None:
    """The text does not depend on the order of the directory."""
    (tmp_path / "b.txt").write_bytes(b"cd")
    (tmp_path / "a.txt").write_bytes(b"ab")
    (tmp_path / "c.bin").write_bytes(b"not text")
    assert text_of(open_text(tmp_path), "input_ids", 0) == b"ab\nc"
    assert text_of(open_text(tmp_path, suffixes=[".bin"]), "input_ids", 0) == b"not "


def test_eval_split_is_disjoint_from_train(tmp_path: Path) -> None:
    """The two splits are head and tail of the text and share no byte."""
    (tmp_path / "a.txt").write_bytes(bytes(range(100)))
    head, tail = (
        open_text(tmp_path / "a.txt", split=split, eval_fraction=0.25)
        for split in ("train", "eval")
    )
    seen, held_out = (
        {byte for step in range(len(source)) for key in ("input_ids", "labels")
         for byte in text_of(source, key, step)}
        for source in (head, tail)
    )  # fmt: skip
    assert max(seen) < 75
    assert min(held_out) == 75


def test_shuffled_batches_hold_the_same_text_in_another_order(tmp_path: Path) -> None:
    """Shuffling moves whole windows and loses none."""
    (tmp_path / "a.txt").write_bytes(bytes(range(201)))
    in_order, shuffled = (open_text(tmp_path / "a.txt", shuffle=shuffle) for shuffle in (0, 1))
    windows = [text_of(in_order, "labels", step) for step in range(50)]
    moved = [text_of(shuffled, "labels", step) for step in range(50)]
    assert moved != windows
    assert sorted(moved) == windows


def test_stdlib_is_text_on_every_machine() -> None:
    """A few megabytes, in sorted order, without tests and installed packages."""
    root = Path(sysconfig.get_path("stdlib"))
    files = [file.relative_to(root) for file in stdlib_files()]
    assert files == sorted(files)
    assert Path("json/decoder.py") in files
    assert not {"site-packages", "test", "tests"} & {part for file in files for part in file.parts}
    source = open_text("stdlib", batch_size=64, max_sequence_length=128)
    assert len(source) * 64 * 128 > 5_000_000
    assert source.batch(0)["input_ids"].shape == torch.Size([64, 128])


@pytest.mark.parametrize(
    ("content", "code"), [(b"", "text-empty"), (b"abcd", "text-shorter-than-sequence")]
)
def test_too_little_text_is_refused(tmp_path: Path, content: bytes, code: str) -> None:
    """No text, and less than one window; both errors name the file."""
    (tmp_path / "a.txt").write_bytes(content)
    with raises(DataError, code) as caught:
        open_text(tmp_path / "a.txt")
    assert str(tmp_path / "a.txt") in str(caught.value.where)
    assert caught.value.rule


def test_too_little_text_for_the_eval_split_is_refused(tmp_path: Path) -> None:
    """The error names the split."""
    (tmp_path / "a.txt").write_bytes(b"abcdefgh")
    with raises(DataError, "text-shorter-than-sequence") as caught:
        open_text(tmp_path / "a.txt", split="eval")
    assert "split eval" in str(caught.value.where)
