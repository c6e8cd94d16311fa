"""Traces of clusters, whole and broken."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core.errors import DataError
from waferstream.management.schedule import trace
from waferstream.management.schedule.trace import TraceJob, read_trace

SWF = """; MaxProcs: 128
 1 100 -1 1451 128 -1 -1 -1 -1 -1 -1 ann 1 -1 -1 -1 -1 -1
 2  40 -1   60   1 -1 -1 -1 -1 -1 -1 bob 1 -1 -1 -1 -1 -1
 3  50 -1   -1   1 -1 -1 -1 -1 -1 -1 bob 1 -1 -1 -1 -1 -1
"""
CSV = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,ann
2017-10-09 07:00:55,30.0,2,66.0,bob
"""


def test_swf_is_read_by_submission_without_jobs_that_never_ran(tmp_path: Path) -> None:
    path = tmp_path / "trace.swf"
    path.write_text(SWF)
    assert read_trace(path) == [TraceJob(0.0, 60.0, 1, "bob"), TraceJob(60.0, 1451.0, 128, "ann")]
    assert read_trace(path, most_jobs=1) == [TraceJob(0.0, 60.0, 1, "bob")]


def test_a_csv_is_read_like_swf_and_compressed_like_plain(tmp_path: Path) -> None:
    found = [TraceJob(0.0, 30.0, 2, "bob"), TraceJob(60.0, 66.0, 1, "ann")]
    (tmp_path / "trace.csv").write_text(CSV)
    (tmp_path / "trace.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    with zipfile.ZipFile(tmp_path / "trace.csv.zip", "w") as archive:
        archive.writestr("inside", CSV)
    for name in ("trace.csv", "trace.csv.gz", "trace.csv.zip"):
        assert read_trace(tmp_path / name) == found


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("trace.txt", b"", "trace-format"),
        ("absent.swf", None, "trace-not-readable"),
        ("bytes.swf", b"\xff\xfe\x00", "trace-not-readable"),
        ("zip.swf.zip", b"no archive", "trace-not-readable"),
        ("gzip.swf.gz", gzip.compress(SWF.encode(), mtime=0)[:-9], "trace-not-readable"),
        ("empty.swf", b"; nothing\n", "trace-size"),
        ("line.swf", b"1 2 3\n", "trace-line"),
        ("word.swf", SWF.replace("1451", "long").encode(), "trace-line"),
        ("nan.swf", SWF.replace("1451", "nan").encode(), "trace-line"),
        ("infinite.swf", SWF.replace(" 128 ", " inf ").encode(), "trace-line"),
        ("date.csv", CSV.replace("2017", "today").encode(), "trace-line"),
        ("column.csv", CSV.replace("duration", "length").encode(), "trace-line"),
        ("long.swf", b"1 " * 4000, "trace-size"),
    ],
)
def test_what_is_no_trace_is_refused(
    tmp_path: Path, name: str, data: bytes | None, code: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with raises(DataError, code):
        read_trace(tmp_path / name)


def test_an_archive_of_several_files_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "trace.swf.zip", "w") as archive:
        archive.writestr("one", SWF)
        archive.writestr("two", SWF)
    with raises(DataError, "trace-archive"):
        read_trace(tmp_path / "trace.swf.zip")


def test_an_archive_that_unpacks_beyond_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "MOST_BYTES", 1000)
    (tmp_path / "trace.swf.gz").write_bytes(gzip.compress(SWF.encode() * 100))
    with raises(DataError, "trace-size"):
        read_trace(tmp_path / "trace.swf.gz")
