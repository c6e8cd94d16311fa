"""Every command is found, explained on one screen, and imported only when it is called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from waferstream.cli.app import COMMANDS, root
from waferstream.cli.flags.forms import FORMS
from waferstream.cli.main import main

ROOT = Path(__file__).parents[4]
SCREEN = 50
"""Lines of a terminal."""


def ended(*words: str) -> object:
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    return caught.value.code


def test_help_names_every_command_that_people_look_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("--help") == 0
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) <= SCREEN
    for name, entry in COMMANDS.items():
        assert entry.hidden or (name in printed and entry.help.partition(";")[0] in printed), name


EXAMPLES = {
    **dict.fromkeys(["train", "eval", "simulate", "trace", "explore", "compare"], "params.yaml"),
    **dict.fromkeys(["plan", "study", "search", "fit", "validate", "validate_all"], "params.yaml"),
    **dict.fromkeys(["generate", "serve", "batch", "report"], "model_dir"),
    "exec": "--num_csx 4",
    "check": "--num_csx 2",
    "serve keys create": "anne",
    "serve usage": "--key",
    "management start": "--systems",
}
"""What comes first in the example of a command."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_help_is_one_screen_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert ended(*name.split(), "--help") == 0
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) <= SCREEN
    assert f"waferstream {name} {EXAMPLES[name]}" in printed


def test_every_form_has_an_entry() -> None:
    assert FORMS.keys() <= COMMANDS.keys()
    assert root().commands.keys() == COMMANDS.keys()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["tran", "p.yaml"], "Did you mean 'train'"),
        (["train", "p.yaml", "--num-cs=2"], "did you mean --num_csx?"),
        ([], "name a command"),
    ],
)
def test_wrong_word_is_refused_with_the_nearest(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(*words) == 2
    assert complaint in capsys.readouterr().err


def test_names_may_have_hyphens(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of commands and of flags."""
    assert main(["data-processor", "list"]) == 0
    assert ended("validate-all", "p.yaml", "--num-csx=two") == 2
    assert "'two'" in capsys.readouterr().err


def test_answer_that_needs_no_torch_imports_none(tmp_path: Path) -> None:
    answered = [
        "--help",
        "train --help",
        "train nowhere.yaml --modle.x=1",
        f"train {ROOT}/params.yaml --model.hiden_size=1",
        f"simulate {ROOT}/params.yaml --model.hidden_size=wide",
        f"train {ROOT}/params.yaml --train_dataloader.bath_size=1",
        f"train {ROOT}/params.yaml --machine.swarmx.fanout=1",
        f"check {ROOT}/params.yaml --model.hiden_size=1",
        "checkpoint",
        "model infos",
        "cluster --help",
    ]
    program = (
        "import sys; from waferstream.cli.main import main\n"
        "for words in sys.argv[1:]:\n"
        "    try: main(words.split())\n"
        "    except SystemExit: pass\n"
        "    slow = [name for name in ('torch', 'ray', 'matplotlib') if name in sys.modules]\n"
        "    print(words, 'imports', slow, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, *answered]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    told = [line for line in done.stderr.splitlines() if " imports [" in line]
    assert told == [f"{words} imports []" for words in answered]


@pytest.mark.parametrize(
    "words",
    ["compare wrong.yaml --budget 3B", "search wrong.yaml --budget 3B", "explore wrong.yaml"],
)
def test_wrong_key_of_a_file_needs_no_torch(words: str, tmp_path: Path) -> None:
    text = (ROOT / "params.yaml").read_text()
    (tmp_path / "wrong.yaml").write_text(text.replace("hidden_size", "hiden_size"))
    code = "import sys; sys.modules['torch'] = None; from waferstream.cli.main import main\n"
    command = [sys.executable, "-c", f"{code}sys.exit(main(sys.argv[1:]))", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "[unknown-key]" in done.stderr
