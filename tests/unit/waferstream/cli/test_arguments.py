"""What is typed is understood in every spelling, and refused where it is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.errors import raises
from waferstream.cli.arguments import Arguments, check_names, parse_arguments
from waferstream.cli.flags.config import CONFIG_FLAGS, REAL_MACHINE_FLAGS
from waferstream.cli.flags.flag import parse_scalar
from waferstream.cli.flags.run import RUN_FLAGS
from waferstream.cli.run import cluster_of
from waferstream.config.overrides import apply_overrides
from waferstream.config.phases import load_params
from waferstream.core.errors import ConfigError
from waferstream.reports.economics import PriceSpec
from waferstream.scaling.sweep import SimulationRequest

PARAMS = """
trainer:
  init:
    model: {name: gpt3}
    backend:
      cluster_config: {num_csx: 2, mount_dirs: [/file], job_labels: [a=file, b=file]}
    logging: {wsc_log_level: INFO}
    loop: {max_steps: 100}
    callbacks:
      - GlobalFlags: {csx.debug.ini: {x: 1, y: 2}}
  fit:
    train_dataloader: {data_processor: Dummy, batch_size: 8}
"""


def parse(*argv: str) -> Arguments:
    return parse_arguments(argv, home=Path("nowhere"), cwd=Path("nowhere"))


def resolved(tmp_path: Path, *argv: str) -> Any:
    """The ``init`` section after these flags were typed."""
    path = tmp_path / "params.yaml"
    path.write_text(PARAMS)
    return load_params(path, parse("-p", str(path), *argv).overrides()).trainer.init


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """What is printed before the program exits with code 2."""
    with pytest.raises(SystemExit) as caught:
        parse(*argv)
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_only_what_is_typed_is_an_override() -> None:
    """Without flags there is nothing to lay over the file."""
    arguments = parse("--params", "p.yaml")
    assert arguments.overrides() == ()
    assert arguments.typed == {"params": "p.yaml"}
    assert (arguments.params, arguments.mode) == (Path("p.yaml"), "train_and_eval")
    assert arguments.trace is None


@pytest.mark.parametrize(
    "argv",
    [
        "CSX --params p.yaml --mode eval --model_dir out --compile_dir c --num_csx 4",
        "--params=p.yaml --mode=eval --model_dir=out --compile_dir=c --num_csx=4",
        "-p p.yaml -m eval -o out -c c --num_csx=4",
    ],
)
def test_flags_are_written_long_or_short_with_or_without_equals(argv: str) -> None:
    """All spellings say the same; the device word may be left out."""
    arguments = parse(*argv.split())
    assert (arguments.params, arguments.mode) == (Path("p.yaml"), "eval")
    values = {override.path[-1]: override.value for override in arguments.overrides()}
    values.pop("backend_type", None)
    assert values == {"model_dir": "out", "compile_dir": "c", "num_csx": 4}


@pytest.mark.parametrize("tokens", ["0", "-5", "nan", "inf", "1e400", "1e308", "1.1e18"])
def test_token_budget_out_of_range_is_refused(tokens: str) -> None:
    """The flag is named."""
    with raises(ConfigError, "token-budget-out-of-range") as caught:
        parse("--params", "p.yaml", "--simulate", f"--token_budget={tokens}")
    assert caught.value.where == "--token_budget"
    assert caught.value.rule == "more than 0, at most 1e+18"


@pytest.mark.parametrize("price", ["system_hour_price", "system_kw", "kwh_price"])
@pytest.mark.parametrize("value", ["1e308", "-1", "nan", "inf"])
def test_price_out_of_range_is_refused(price: str, value: str) -> None:
    """The price is named, with its bound."""
    with pytest.raises(ConfigError) as caught:
        parse("--params=p.yaml", "--simulate", "--token_budget=1e9", f"--{price}={value}")
    assert price.removesuffix("_price") in caught.value.what


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--compile_only", "--compile_only cannot be combined with --simulate"),
        ("--validate_only", "--validate_only cannot be combined with --simulate"),
    ],
)
def test_flag_without_effect_on_a_simulation_is_refused(
    flag: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rather than left aside in silence."""
    with pytest.raises(SystemExit) as stopped:
        parse("--params", "p.yaml", "--simulate", flag)
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err


def test_overflow_is_allowed_in_simulations_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """A run has to fit."""
    assert parse("--params=p.yaml", "--simulate", "--allow_overflow").simulation == (
        SimulationRequest(allows_overflow=True)
    )
    with pytest.raises(SystemExit) as stopped:
        parse("--params=p.yaml", "--allow_overflow")
    assert stopped.value.code == 2
    assert "--allow_overflow requires --simulate" in capsys.readouterr().err


def test_a_simulation_takes_local_and_power_without_a_token_budget() -> None:
    """A simulation starts nothing on Ray, and states energy and cost of a step."""
    parsed = parse("--params=p.yaml", "--simulate", "--local", "--system_kw=20", "--kwh_price=0.1")
    assert parsed.simulation is not None
    assert parsed.simulation.prices == PriceSpec(system_kw=20, kwh_price=0.1)


def test_a_system_without_power_is_refused() -> None:
    """A price may be zero, a power may not."""
    with raises(ConfigError, "out-of-range"):
        parse("--params=p.yaml", "--simulate", "--system_kw=0")


def test_typed_values_win_lists_are_put_first_and_mappings_merge(tmp_path: Path) -> None:
    """The three rules of section 1.1, on one file."""
    init = resolved(
        tmp_path,
        *["--num_csx", "4", "--mount_dirs", "/typed", "/too", "--job_labels", "a=typed", "c=typed"],
        *["--ini", "y=3", "--ini", "z=true", "--wsc_log_level", "wgt=DEBUG", "--compile_only"],
        *["--load_checkpoint_states", "model,optimizer"],
    )
    cluster = init.backend.cluster_config
    assert cluster.num_csx == 4
    assert cluster.mount_dirs == (Path("/typed"), Path("/too"), Path("/file"))
    assert cluster.job_labels == {"a": "typed", "b": "file", "c": "typed"}
    assert init.loop.max_steps == 100
    assert init.backend.compile_only
    assert init.logging.wsc_log_level["wgt"] == "DEBUG"
    assert init.logging.wsc_log_level["act"] == "INFO"
    flags, *_, states = init.callbacks
    assert flags.ini == {"x": 1, "y": 3, "z": True}
    assert states.load_checkpoint_states == ("model", "optimizer")


def test_a_level_for_all_and_levels_for_some(tmp_path: Path) -> None:
    """A level without a role applies to all roles; later entries override earlier ones."""
    levels = resolved(tmp_path, "--wsc_log_level", "error", "wgt=10").logging.wsc_log_level
    assert (levels["wgt"], levels["act"], levels["crd"]) == (10, "ERROR", "ERROR")


def test_a_checkpoint_goes_to_the_modes_that_the_file_has() -> None:
    """--checkpoint_path concerns fit, validate and validate_all."""
    overrides = parse("-p", "p", "--checkpoint_path", "x.mdl").overrides()
    trainer: dict[str, Any] = {"init": {}, "fit": {}, "validate_all": {}}
    assert apply_overrides(trainer, overrides) == {
        "init": {},
        "fit": {"ckpt_path": "x.mdl"},
        "validate_all": {"ckpt_paths": "x.mdl"},
    }


@pytest.mark.parametrize("flag", [*CONFIG_FLAGS, *REAL_MACHINE_FLAGS], ids=lambda flag: flag.name)
def test_every_flag_reaches_a_key_that_exists(tmp_path: Path, flag: Any) -> None:
    """Each flag of the table is understood and lands on a key that the file may have."""
    value = {"logging": "DEBUG", "wsc_log_level": "DEBUG", "load_checkpoint_states": "model"}
    word = value.get(flag.name, (*get_args(flag.kind), "k=1")[0])
    if flag.kind is int:
        word = "5"
    if flag.kind == list[str]:
        word = value.get(flag.name, "k=1")
    spelled = [] if flag.positional else [f"--{flag.name}"]
    typed = spelled if flag.kind is bool else [*spelled, word]
    path = tmp_path / "params.yaml"
    path.write_text(PARAMS)
    arguments = parse(*typed, "-p", str(path))
    assert flag.name in arguments.typed
    load_params(path, arguments.overrides())


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        ("--parms p.yaml", "unknown flag --parms; did you mean --params?"),
        ("-p p.yaml --num_cs=3", "unknown flag --num_cs; did you mean --num_csx?"),
        ("-p p.yaml --zzz", "unknown flag --zzz\n"),
        ("-p p.yaml -q", "unknown flag -q"),
        ("", "required: -p/--params"),
        ("TPU -p p.yaml", "'TPU' is not one of 'CSX'"),
        ("-p p.yaml --mode tran", "'tran' is not one of"),
        (
            "-p p.yaml --num_csx two",
            "a whole number; got 'two'",
        ),
        ("-p p.yaml --job_labels a", "'a' must be key=value"),
        ("-p p.yaml --ini =1", "'=1' must be key=value"),
        ("-p p.yaml --job_priority p0", "'p0' is not one of 'p1'"),
        ("-p p.yaml --compile_only --validate_only", "cannot be combined with --compile_only"),
        ("-p p.yaml --num_csx", "expected one argument"),
        ("-p p.yaml stray", "stray"),
    ],
)
def test_a_wrong_command_line_exits_with_2(
    capsys: pytest.CaptureFixture[str], argv: str, complaint: str
) -> None:
    """The message names the word that is wrong, and the nearest flag that is known."""
    printed = refused(capsys, *argv.split())
    assert complaint in printed
    assert "waferstream: error:" in printed


def test_a_negative_number_is_a_value_not_a_flag(tmp_path: Path) -> None:
    """--num_csx -1 is understood, and refused for its value."""
    with pytest.raises(ConfigError) as caught:
        resolved(tmp_path, "--num_csx", "-1")
    assert "--num_csx" in str(caught.value.where)


def test_the_device_word_wins_over_the_file() -> None:
    """A typed CSX sets the backend; without the word the file decides."""
    (override,) = parse("CSX", "-p", "p").overrides()
    assert (override.path, override.value) == (("init", "backend", "backend_type"), "CSX")


def test_the_machine_is_found_here_then_beside_the_program(tmp_path: Path) -> None:
    """--cluster, else ./cluster.yaml, else the one beside run.py, else none."""
    home, cwd = tmp_path / "home", tmp_path / "cwd"
    for folder in (home, cwd):
        folder.mkdir()
    argv = ["-p", "p.yaml"]
    assert parse_arguments(argv, home, cwd).cluster is None
    (home / "cluster.yaml").touch()
    assert parse_arguments(argv, home, cwd).cluster == home / "cluster.yaml"
    (cwd / "cluster.yaml").touch()
    assert parse_arguments(argv, home, cwd).cluster == cwd / "cluster.yaml"
    typed = parse_arguments([*argv, "--cluster", "other.yaml"], home, cwd)
    assert typed.cluster == Path("other.yaml")


def test_help_explains_every_flag(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--help exits with 0 and lists each flag with its help."""
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as caught:
        parse("--help")
    assert caught.value.code == 0
    printed = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for flag in (*RUN_FLAGS, *CONFIG_FLAGS, *REAL_MACHINE_FLAGS):
        assert flag.positional or flag.spelling[-1] in printed
        assert flag.help in printed


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("False", False), ("3", 3), ("-3", -3), ("1e3", 1000.0), ("a=b", "a=b")],
)
def test_settings_are_bools_ints_floats_or_words(text: str, value: object) -> None:
    """Tried in this order."""
    assert parse_scalar(text) == value
    assert type(parse_scalar(text)) is type(value)


@settings(deadline=None)
@given(st.booleans() | st.integers() | st.floats(allow_nan=False))
def test_a_written_number_is_read_back(value: Any) -> None:
    """What Python prints for a number is read as the same number of the same type."""
    assert parse_scalar(str(value)) == value
    assert type(parse_scalar(str(value))) is type(value)


def test_starting_up_is_fast() -> None:
    """Reading the command line and the file loads no torch, ray or matplotlib."""
    program = (
        "import sys, waferstream.cli.arguments, waferstream.config.params\n"
        "print([name for name in ('torch', 'ray', 'matplotlib', 'h5py') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"


@pytest.mark.parametrize(
    ("command", "mode"),
    [("fit", "train_and_eval"), ("validate", "eval"), ("validate_all", "eval_all")],
)
def test_sub_command_is_a_mode_with_the_file_as_its_word(command: str, mode: str) -> None:
    arguments = parse(command, "p.yaml", "--target_device", "CSX", "--num_csx", "2")
    assert (arguments.params, arguments.mode) == (Path("p.yaml"), mode)
    values = {override.path[-1]: override.value for override in arguments.overrides()}
    assert values == {"backend_type": "CSX", "num_csx": 2}


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        ("fit", "PARAMS"),
        ("fit p.yaml --mode train", "--mode"),
        ("fit p.yaml --params q.yaml", "--params"),
        ("validate p.yaml --target_device TPU", "--target_device"),
        ("validate p.yaml --simulate", "--simulate"),
        ("-p p.yaml --target_device CSX", "--target_device"),
    ],
)
def test_sub_command_refuses_flags_of_the_other_form(
    capsys: pytest.CaptureFixture[str], argv: str, word: str
) -> None:
    assert word in refused(capsys, *argv.split())


@pytest.mark.parametrize(
    ("argv", "remedy"),
    [
        ("train p.yaml --simulate", "waferstream simulate p.yaml\n"),
        ("train --num_csx 4 p.yaml --wafer-trace decoder.0", "waferstream trace p.yaml\n"),
        ("train p.yaml --mode=eval", "waferstream eval p.yaml\n"),
        ("simulate p.yaml -m train", "waferstream train p.yaml\n"),
        ("eval p.yaml --mode eval_all", "waferstream validate_all p.yaml\n"),
        ("train -p p.yaml", "waferstream train p.yaml\n"),
        ("eval p.yaml --token_budget=3B", "waferstream simulate p.yaml --token_budget\n"),
        ("simulate p.yaml --fault csx-1@5:kill", "waferstream train p.yaml --fault\n"),
        ("plan p.yaml --trace t.json", "waferstream train p.yaml --trace\n"),
        ("trace p.yaml decoder.0 --compile_only", "waferstream train p.yaml --compile_only\n"),
    ],
)
def test_flag_of_run_py_is_refused_with_the_command_in_its_place(
    capsys: pytest.CaptureFixture[str], argv: str, remedy: str
) -> None:
    assert refused(capsys, *argv.split()).endswith(f"type: {remedy}")


def test_local_moves_all_roles_into_this_process(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("runtime: {stall_timeout_s: 44}")
    words = ["--params=p.yaml", f"--cluster={cluster}"]
    kinds = [
        cluster_of(parse_arguments([*words, *more], tmp_path)).runtime for more in ([], ["--local"])
    ]
    assert [runtime.kind for runtime in kinds] == ["ray", "local"]
    assert [runtime.stall_timeout_s for runtime in kinds] == [44, 44]


@pytest.mark.parametrize("place", ["command line", "working folder"])
def test_names_that_are_no_text_are_refused(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of folders in the encoding of another time; before anything is written."""
    named = tmp_path / os.fsdecode(b"caf\xe9")
    named.mkdir()
    if place == "working folder":
        monkeypatch.chdir(named)
    with raises(ConfigError, "name-not-utf-8") as caught:
        check_names(f"run.py --model_dir={named}" if place == "command line" else "run.py")
    assert caught.value.where == place
    assert "caf\\udce9" in str(caught.value.value)


@pytest.mark.parametrize("words", ["CS-2,CS-3", "CS-2 CS-3", "CS-2 --system CS-3"])
def test_known_words_may_have_commas_between_them(words: str) -> None:
    arguments = parse("-p", "params.yaml", "--simulate", "--system", *words.split())
    assert arguments.simulation is not None
    assert arguments.simulation.machines == ("CS-2", "CS-3")
