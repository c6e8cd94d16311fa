"""Errors of the operating system get a code, the place and a remedy."""

import errno
import os

import pytest

from waferstream.core.system_errors import file_error


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "disk-full"),
        (errno.EDQUOT, "disk-full"),
        (errno.ENOENT, "file-gone"),
        (errno.EROFS, "file-forbidden"),
    ],
)
def test_error_of_a_file_has_code_place_and_remedy(number: int, code: str) -> None:
    error = file_error(OSError(number, os.strerror(number), "model_dir/run.log"))
    assert (error.code, error.where) == (code, "model_dir/run.log")
    assert os.strerror(number) in error.what
    assert error.remedy


def test_link_is_named_not_its_target() -> None:
    """A new name could not be made; the target may be elsewhere."""
    error = file_error(OSError(errno.ENOSPC, "full", "../target", None, "model_dir/link"))
    assert error.where == "model_dir/link"


def test_disk_without_inodes_is_not_called_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Space is left, so that freeing space would not help."""
    fields = (4096, 4096, 100, 90, 90, 10, 0, 0, 0, 255)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    error = file_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model_dir/run.log"))
    assert error.code == "disk-without-inodes"
    assert "remove files" in str(error.remedy)
