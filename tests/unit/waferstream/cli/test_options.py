"""What is wrong with a benchmark's command line is told before anything is measured."""

import pytest

from benchmarks import fabric, simulate_curve
from benchmarks.streaming import __main__ as streaming
from validation import __main__ as fidelity
from validation.closed_forms import __main__ as closed_forms
from waferstream.cli.options import new_file, positive

COMMANDS = {
    "closed_forms": (closed_forms.main, []),
    "fabric": (fabric.main, []),
    "fidelity": (fidelity.main, ["--rows", "rows.csv"]),
    "simulate_curve": (simulate_curve.main, []),
    "streaming": (streaming.main, []),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_results_need_a_folder_to_go_to(command, tmp_path, capsys):
    """Not to be found out after an hour."""
    main, arguments = COMMANDS[command]
    with pytest.raises(SystemExit):
        main([*arguments, "--json", str(tmp_path / "missing" / "result.json")])
    assert "existing folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("main", "options"),
    [
        (streaming.main, ["--json", "result.json", "--steps", "0"]),
        (streaming.main, ["--json", "result.json", "--repeats", "-1"]),
        (streaming.main, ["--json", "result.json", "--layers", "x"]),
        (simulate_curve.main, ["--repeats", "0"]),
        (fabric.main, ["--words", "0"]),
    ],
)
def test_a_measurement_of_nothing_is_refused(main, options, capsys):
    """Steps, repeats and sizes are whole numbers from 1."""
    with pytest.raises(SystemExit):
        main(options)
    assert "argument --" in capsys.readouterr().err


def test_a_result_may_replace_an_older_one(tmp_path):
    """A file that is there, or not yet there, but never a folder."""
    assert new_file(str(tmp_path / "result.json")) == tmp_path / "result.json"
    with pytest.raises(Exception, match="no file in an existing folder"):
        new_file(str(tmp_path))
    assert positive("1") == 1
