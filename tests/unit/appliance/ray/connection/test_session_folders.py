"""Folders that Ray leaves: only ours are removed, and only after their process."""

import subprocess
import sys
from pathlib import Path

from appliance.ray.connection.session_folders import mark_session, remove_ended_sessions

_MARK = """
import sys
from pathlib import Path
from appliance.ray.connection.session_folders import mark_session
for name in sys.argv[1:]:
    mark_session(Path(name))
"""


def test_folders_of_ended_runs_are_removed_but_for_the_newest(tmp_path: Path) -> None:
    """Those of living runs, of others and links to them stay."""
    old, last, living, foreign = (tmp_path / f"session_{name}" for name in ("1", "2", "3", "0"))
    for folder in (old, last, living, foreign):
        (folder / "logs").mkdir(parents=True)
        (folder / "logs" / "a.log").touch()
    (tmp_path / "session_latest").symlink_to(last)
    subprocess.run([sys.executable, "-c", _MARK, str(old), str(last)], check=True)
    mark_session(living)
    remove_ended_sessions(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"session_0", "session_2", "session_3", "session_latest"}
    assert (last / "logs" / "a.log").exists()


def test_a_mark_that_says_nothing_removes_nothing(tmp_path: Path) -> None:
    for name, mark in (("session_1", ""), ("session_2", "nobody 1"), ("session_3", "4194305")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "waferstream-owner").write_text(mark)
    remove_ended_sessions(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
