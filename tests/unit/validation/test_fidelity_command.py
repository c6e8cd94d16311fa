"""One command replays files of rows, prints, and writes data, page and picture."""

import json

import pytest

from tests.support.reference_rows import constant, refusing, row, write_rows
from validation.__main__ import main
from validation.families.replay import Family

FAMILIES = [
    constant("collectives", "1D reduce", 101.0),
    constant("GPU training FSDP", "MPT 7b", 80.0),
    refusing("GEMM", "GEMM", "no | shape"),
]


@pytest.fixture
def files(tmp_path):
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


def run(*arguments, families=FAMILIES):
    return main([*map(str, arguments)], families)


def test_every_row_is_printed(files, capsys):
    """Compared rows with both numbers and the error, the others with the reason."""
    assert run("--rows", *files) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = {line.split()[0]: line for line in lines if line.startswith(("K0", "G0"))}
    assert list(cells) == ["K0001", "K0002", "G0001", "K0003", "K0004"]
    for text in ("calibration", "simulator", "1D reduce P=4", "101", "100", "cycles", "+1.0 %"):
        assert text in cells["K0001"]
    assert "-20.0 %" in cells["G0001"]
    assert "no model for FFT" in cells["K0003"]
    assert "no | shape" in cells["K0004"]
    assert lines[-1] == "3 rows compared, 2 not compared, 0 failed"


def test_data_holds_rows_summaries_and_what_repeats_them(files, tmp_path):
    """Host, files by digest, constants, every row, every summary, every goal."""
    assert run("--rows", *files, "--json", tmp_path / "out.json") == 0
    data = json.loads((tmp_path / "out.json").read_text())
    assert {"git_commit", "host", "constants"} <= set(data)
    assert [(one["name"], one["rows"]) for one in data["sources"]] == [
        ("kernels.csv", 4),
        ("gpu.csv", 1),
    ]
    assert [one["row_id"] for one in data["compared"]] == ["K0001", "K0002", "G0001"]
    assert data["compared"][1]["error"] == pytest.approx(0.01)
    assert [one["reason"] for one in data["not_compared"]] == ["no model for FFT", "no | shape"]
    assert [(one["family"], one["evidence"], one["use"]) for one in data["summaries"]] == [
        ("collectives", "silicon", "validation"),
        ("collectives", "simulator", "calibration"),
        ("GPU training FSDP", "silicon", "context"),
    ]
    goals = {goal["families"]: goal["met"] for goal in data["goals"]}
    assert (goals["collectives"], goals["GPU training"]) == (True, None)


def test_the_page_holds_results_limits_and_constants(files, tmp_path):
    """Tables, picture by relative path, the hand-written limits, reasons, constants."""
    page, picture = tmp_path / "page.md", tmp_path / "picture.png"
    assert run("--rows", *files, "--markdown", page, "--picture", picture) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = page.read_text()
    assert "](picture.png)" in text
    assert "| collectives | mean at most 2 % | 1 | 1.0 % | 1.0 % | met |" in text
    assert "## What the model leaves open" in text
    assert "| GEMM | no \\| shape | K0004 |" in text
    assert "| `hop_cycles` | 1 | published |" in text
    assert str(tmp_path) not in text


def test_check_fails_on_a_missed_goal_and_names_it(files, capsys):
    """Without --check a report is a report."""
    families = [constant("collectives", "1D reduce", 103.0)]
    assert run("--rows", *files, families=families) == 0
    assert run("--rows", *files, "--check", families=families) == 1
    assert "missed: collectives" in capsys.readouterr().err


def test_check_fails_on_a_constant_fitted_to_a_validation_row(tmp_path, capsys):
    """T0088 is where the time of programming a CS-2 comes from; turned validation, it is a foul."""
    for use, status in (("calibration", 0), ("validation", 1)):
        path = write_rows(tmp_path / "rows.csv", row("T0088", use=use))
        assert run("--rows", path, "--check") == status
    assert "CS2.programming_ps, T0088" in capsys.readouterr().err


def test_a_broken_replay_fails_the_report_and_names_the_row(files, tmp_path, capsys):
    """The other rows are reported all the same, and the data says which row broke."""
    families = [
        *FAMILIES,
        Family("FFT", lambda row: row.text("workload") == "FFT", lambda _: 1 / 0),
    ]
    page = tmp_path / "page.md"
    out = tmp_path / "out.json"
    assert run("--rows", *files, "--json", out, "--markdown", page, families=families) == 1
    printed = capsys.readouterr()
    assert "BUG on row K0003 (FFT)" in printed.out
    assert "K0003" in printed.err
    assert json.loads(out.read_text())["failed"][0]["row_id"] == "K0003"
    assert "ZeroDivisionError" in page.read_text()


def test_a_malformed_file_ends_the_command_before_anything_is_written(files, tmp_path, capsys):
    """The message names file, row and field; no output file appears."""
    bad = write_rows(tmp_path / "bad.csv", row("K0009", unit="cylces"))
    assert run("--rows", *files, bad, "--json", tmp_path / "out.json") == 1
    assert "bad.csv, line 2, row K0009, field unit" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()


def test_an_output_folder_must_exist(files, tmp_path, capsys):
    """Refused before the replays run."""
    with pytest.raises(SystemExit):
        run("--rows", *files, "--json", tmp_path / "nowhere" / "out.json")
    assert "existing folder" in capsys.readouterr().err


def test_a_picture_needs_no_row(tmp_path):
    """When nothing can be compared the picture is empty, not an error."""
    path = write_rows(tmp_path / "rows.csv", row(workload="FFT"))
    assert run("--rows", path, "--picture", tmp_path / "picture.png") == 0
    assert (tmp_path / "picture.png").exists()
