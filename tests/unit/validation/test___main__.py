"""``python -m validation`` predicts files of rows, prints, and writes data, page and picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.timing.reference_rows import constant, refusing, row, write_rows
from validation.__main__ import main
from validation.families.prediction import Family

Capture = pytest.CaptureFixture[str]

FAMILIES = [
    constant("collectives", "1D reduce", 101.0),
    constant("GPU training FSDP", "MPT 7b", 80.0),
    refusing("GEMM", "GEMM", "no | shape"),
]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Two files of different kinds."""
    kernels = write_rows(
        tmp_path / "kernels.csv",
        row("K0001", use="calibration", num_pes="4"),
        row("K0002", evidence="silicon"),
        row("K0003", workload="FFT"),
        row("K0004", workload="GEMM"),
    )
    gpu = write_rows(tmp_path / "gpu.csv", row("G0001", "gpu", workload="MPT 7b", use="context"))
    return [str(kernels), str(gpu)]


def _run(*arguments: str | Path, families: Sequence[Family] = FAMILIES) -> int:
    return main([*map(str, arguments)], families)


def test_report_prints_every_row(files: list[str], capsys: Capture) -> None:
    """Compared rows with both numbers and the error, skipped rows with the reason."""
    assert _run("--rows", *files) == 0
    lines = capsys.readouterr().out.splitlines()
    printed = {line.split()[0]: line for line in lines if line.startswith(("K0", "G0"))}
    assert list(printed) == ["K0001", "K0002", "G0001", "K0003", "K0004"]
    for text in ("calibration", "simulator", "1D reduce P=4", "101", "100", "cycles", "+1.0 %"):
        assert text in printed["K0001"]
    assert "-20.0 %" in printed["G0001"]
    assert "no | shape" in printed["K0004"]


def test_json_holds_rows_summaries_code_and_constants(files: list[str], tmp_path: Path) -> None:
    """Host, digests of files, constants, every row, every summary, every goal."""
    assert _run("--rows", *files, "--json", tmp_path / "out.json") == 0
    data = json.loads((tmp_path / "out.json").read_text())
    assert {"git_commit", "host", "constants"} <= set(data)
    assert [(one["name"], one["rows"]) for one in data["sources"]] == [
        ("kernels.csv", 4),
        ("gpu.csv", 1),
    ]
    assert [one["row_id"] for one in data["compared"]] == ["K0001", "K0002", "G0001"]
    assert data["compared"][1]["error"] == pytest.approx(0.01)
    assert [(one["row_id"], one["code"]) for one in data["skipped"]] == [
        ("K0003", "no-family"),
        ("K0004", "refused"),
    ]
    assert [(one["family"], one["evidence"], one["mark"]) for one in data["summaries"]] == [
        ("collectives", "silicon", "validation"),
        ("collectives", "simulator", "unused"),
        ("GPU training FSDP", "silicon", "context"),
    ]
    goals = {goal["families"]: goal["met"] for goal in data["goals"]}
    assert (goals["collectives"], goals["GPU training"]) == (True, None)


def test_markdown_holds_results_limits_and_constants(files: list[str], tmp_path: Path) -> None:
    """Tables, the picture by a relative path, the hand-written notes, reasons, constants."""
    page, picture = tmp_path / "page.md", tmp_path / "picture.png"
    assert _run("--rows", *files, "--markdown", page, "--picture", picture) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = page.read_text()
    assert "](picture.png)" in text
    assert "| collectives | mean at most 2 % | 1 | 1.0 % | 1.0 % | met |" in text
    assert "| GEMM | no \\| shape | K0004 |" in text
    assert "| `hop_cycles` | 1 | published |" in text
    assert str(tmp_path) not in text


def test_check_fails_on_a_missed_goal(files: list[str], capsys: Capture) -> None:
    """Without --check a missed goal is only reported."""
    families = [constant("collectives", "1D reduce", 103.0)]
    assert _run("--rows", *files, families=families) == 0
    assert _run("--rows", *files, "--check", families=families) == 1
    assert "missed: collectives" in capsys.readouterr().err


def test_check_fails_on_a_constant_fitted_to_a_validation_row(
    tmp_path: Path, capsys: Capture
) -> None:
    """G0089 is among the sources of a share of an A100; marked validation, it must not be."""
    for use in ("calibration", "validation"):
        path = write_rows(tmp_path / "rows.csv", row("G0089", kind="gpu", use=use))
        status = _run("--rows", path, "--check")
        complains = "A100_80.matmul_share, G0089" in capsys.readouterr().err
        assert complains == (use == "validation")
    assert status == 1


def test_failed_predictions_fail_the_report(
    files: list[str], tmp_path: Path, capsys: Capture
) -> None:
    """The other rows are still reported, and the data names the failed row."""

    def fail(_: object) -> float:
        raise ZeroDivisionError

    families = [*FAMILIES, Family("FFT", lambda row: row.text("workload") == "FFT", fail)]
    page, out = tmp_path / "page.md", tmp_path / "out.json"
    assert _run("--rows", *files, "--json", out, "--markdown", page, families=families) == 1
    printed = capsys.readouterr()
    assert "BUG on row K0003 (FFT)" in printed.out
    assert "K0003" in printed.err
    assert json.loads(out.read_text())["failed"][0]["row_id"] == "K0003"
    assert "ZeroDivisionError" in page.read_text()


def test_malformed_files_end_the_command_before_it_writes(
    files: list[str], tmp_path: Path, capsys: Capture
) -> None:
    """The error names file, row and field; no output file appears."""
    bad = write_rows(tmp_path / "bad.csv", row("K0009", unit="cylces"))
    assert _run("--rows", *files, bad, "--json", tmp_path / "out.json") == 1
    error = capsys.readouterr().err
    assert "[unknown-unit]" in error
    assert "bad.csv, line 2, row K0009, field unit" in error
    assert not (tmp_path / "out.json").exists()


def test_output_folders_must_exist(files: list[str], tmp_path: Path) -> None:
    """The command line is checked before any prediction."""
    with pytest.raises(SystemExit):
        _run("--rows", *files, "--json", tmp_path / "nowhere" / "out.json")


def test_picture_of_no_rows_is_empty(tmp_path: Path) -> None:
    """It is no error that nothing can be compared."""
    path = write_rows(tmp_path / "rows.csv", row(workload="FFT"))
    assert _run("--rows", path, "--picture", tmp_path / "picture.png") == 0
    assert (tmp_path / "picture.png").exists()
