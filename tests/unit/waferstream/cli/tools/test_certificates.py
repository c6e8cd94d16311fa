"""``waferstream certificates``: refused arguments."""

from pathlib import Path

import pytest

from tests.support.host.tools import tool


@pytest.mark.parametrize("host", ["../elsewhere", "", "a,/b", "-x"])
def test_host_name_cannot_leave_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    words = ("certificates", "make", tmp_path / "made", f"--host={host}")
    assert "[host-name-malformed]" in tool(capsys, *words, code=1)
    assert not [path for path in tmp_path.rglob("*.pem") if path.name != "ca.pem"]


def test_validity_has_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("certificates", "make", tmp_path, "--host", "a", "--days", 10**9)
    with pytest.raises(SystemExit) as ended:
        tool(capsys, *words)
    assert ended.value.code == 2
    assert "'--days'" in capsys.readouterr().err


def test_folder_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    words = ("certificates", "make", tmp_path / "file" / "made", "--host", "a")
    assert "[certificates-not-made]" in tool(capsys, *words, code=1)
