"""Pictures that are kept are those that would be drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from waferstream.reports.kept_pictures import draw_once

PLACE = f"{__name__}:draw"

times_drawn: list[object] = []


def draw(path: Path, shown: object) -> None:
    """Draw a picture, and count how often."""
    times_drawn.append(shown)
    path.write_text(f"picture of {shown}")


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of kept pictures, empty."""
    times_drawn.clear()
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path / "state"))
    return tmp_path / "state" / "pictures"


def test_same_picture_is_drawn_once(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw_once(tmp_path / name, PLACE, (1, 2.5))
    assert times_drawn == [(1, 2.5)]
    assert (tmp_path / "b.png").read_text() == (tmp_path / "a.png").read_text()


def test_another_picture_is_drawn(tmp_path: Path) -> None:
    for shown in (1, 1.0, "1"):
        draw_once(tmp_path / "a.png", PLACE, shown)
    assert times_drawn == [1, 1.0, "1"]
    assert (tmp_path / "a.png").read_text() == "picture of 1"


@pytest.mark.parametrize("content", [b"", b"a picture", b"0" * 64 + b"\nof another user"])
def test_damaged_and_foreign_pictures_do_not_count(
    tmp_path: Path, kept: Path, content: bytes
) -> None:
    draw_once(tmp_path / "a.png", PLACE, 1)
    (file,) = kept.iterdir()
    file.write_bytes(content)
    draw_once(tmp_path / "b.png", PLACE, 1)
    assert times_drawn == [1, 1]
    assert (tmp_path / "b.png").read_text() == "picture of 1"


def test_picture_of_a_user_without_state_folder_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path / "file"))
    draw_once(tmp_path / "a.png", PLACE, 1)
    assert (tmp_path / "a.png").read_text() == "picture of 1"
