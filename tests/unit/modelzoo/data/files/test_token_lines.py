"""Lines of text files are found without reading the files twice, and read on demand."""

from __future__ import annotations

from pathlib import Path

import pytest

from modelzoo.data.files import token_lines
from modelzoo.data.files.token_lines import TokenLines
from tests.support.errors import raises
from waferstream.core.errors import DataError

TEXT = "a bb\tc \n\n  \nd\u00a0e \u2581f\r\n g"


@pytest.mark.parametrize("block", [1, 3, 1 << 20])
def test_lines_have_their_words(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty lines have none; the last line needs no end; blocks may end anywhere."""
    monkeypatch.setattr(token_lines, "_BLOCK", block)
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text(TEXT, newline="")
    second.write_text("h i\n")
    lines = TokenLines([(first, 5), (second, 1)])
    assert lines.num_words.tolist() == [3, 0, 0, 2, 1, 2]
    words = [["a", "bb", "c"], [], [], ["d\u00a0e", "\u2581f"], ["g"], ["h", "i"]]
    assert [lines.read(line) for line in range(6)] == words


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    """Another number of lines, no file, and bytes that are no text."""
    path = tmp_path / "a.txt"
    with raises(DataError, "data-file-unreadable"):
        TokenLines([(path, 1)])
    path.write_bytes(b"a \xff\n")
    with raises(DataError, "line-count-mismatch"):
        TokenLines([(path, 2)])
    with raises(DataError, "data-file-unreadable"):
        TokenLines([(path, 1)]).read(0)
