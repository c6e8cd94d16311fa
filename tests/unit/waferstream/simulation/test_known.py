"""Simulations of configurations that were captured before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from appliance.spec import ClusterSpec
from memoryx.optim.rule import RULES
from tests.support.runs.tiny_run import ROOT, run_here, write_run
from waferstream.config.params import Params
from waferstream.config.phases import load_params
from waferstream.simulation.capturing import capturing
from waferstream.simulation.facts import Facts, facts_of
from waferstream.simulation.known import find_known, remember

NEEDLESS = (
    *("torch", "ray", "matplotlib", "PIL", "h5py"),
    *("csnode.fabric", "waferstream.core.messages.messages", "waferstream.machine.regions"),
    *("waferstream.compiler.passes", "waferstream.studies.result"),
)
"""What takes long to import, and a known simulation does without."""

PROGRAM = f"""
import sys
sys.modules.update(dict.fromkeys({NEEDLESS}))  # to import one fails
from waferstream.cli.entry import run
sys.exit(run())
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The params file of a tiny run, of which the step was captured; tests leave it as it is."""
    folder = tmp_path_factory.mktemp("run")
    write_run(folder, init__backend__compile_dir=str(folder / "cache"))
    with capturing(load_params(folder / "params.yaml"), ClusterSpec()) as capture:
        capture.study(load_params(folder / "params.yaml"), ClusterSpec(), (1, 2))
    return folder / "params.yaml"


def changed(file: Path, **values: Any) -> Params:
    """Return the configuration with other values of keys, by their dotted path below trainer."""
    params = yaml.safe_load(file.read_text())
    for dotted, value in values.items():
        *path, last = dotted.split("__")
        section = params["trainer"]
        for key in path:
            section = section[key]
        section[last] = value
    other = file.with_name("changed.yaml")
    other.write_text(yaml.safe_dump(params))
    return load_params(other)


def test_known_step_is_the_captured_one(file: Path) -> None:
    params = load_params(file)
    known = find_known(params)
    assert known is not None
    other = changed(file, init__backend__compile_dir=str(file.parent / "empty"))
    with capturing(other, ClusterSpec()) as capture:
        capture.study(other, ClusterSpec(), (1, 2))
        assert known == (capture.capture(), facts_of(other.trainer))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("init__model__hidden_size", 32),
        ("init__precision__precision_opt_level", 1),
        ("init__optimizer", {"SGD": {"lr": 0.1}}),
        ("fit__train_dataloader__max_sequence_length", 8),
        ("fit__train_dataloader__batch_size", 16),
        ("init__callbacks", [{"NotFiniteSteps": {"action": "skip"}}]),
    ],
)
def test_other_keys_are_not_known(file: Path, key: str, value: Any) -> None:
    assert find_known(changed(file, **{key: value})) is None


def test_keys_that_decide_nothing_do_not_count(file: Path) -> None:
    other = changed(file, init__loop__max_steps=3, init__model_dir=str(file.parent / "other"))
    assert find_known(other) is not None


@pytest.mark.parametrize("name", ["text.txt", "t*t.txt", "$FOLDER/text.txt"])
def test_changed_data_are_read_again(
    file: Path, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where others of the same size and time have taken their place."""
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "text.txt"
    text.write_bytes(bytes(20_000))
    (step,) = (file.parent / "cache").glob("step_*.json")
    loader, cache = "fit__train_dataloader__path", "init__backend__compile_dir"
    params = changed(file, **{loader: name, cache: str(tmp_path)})
    remember(params, Path(shutil.copy(step, tmp_path)), Facts())
    assert find_known(params) is not None
    before = text.stat()
    text.write_bytes(b"x" * before.st_size)
    os.utime(text, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert find_known(params) is None


OTHERS = """[waferstream.data_processors]
Other = tiny_others:Other

[waferstream.optimizers]
OtherSGD = tiny_others:OtherSGD
"""

OTHERS_CODE = """
from memoryx.optim.fused_rules import SGD
from modelzoo.data.language.text import TextDataProcessor

class Other(TextDataProcessor):
    pass

class OtherSGD(SGD):
    pass
"""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fit__train_dataloader__data_processor", "Other"),
        ("init__optimizer", {"OtherSGD": {"lr": 0.1}}),
    ],
)
def test_code_of_installed_packages_is_captured_anew(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: Any
) -> None:
    """No digest knows it."""
    metadata = tmp_path / "tiny_others-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-others\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(OTHERS)
    (tmp_path / "tiny_others.py").write_text(OTHERS_CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("memoryx.optim.rule.RULES", RULES.copy())
    params = changed(file, **{key: value, "init__backend__compile_dir": str(tmp_path / "cache")})
    with capturing(params, ClusterSpec()) as capture:
        capture.capture()
    assert not list((tmp_path / "cache").glob("*.json"))


@pytest.mark.parametrize("kind", ["known", "step"])
@pytest.mark.parametrize("content", [b"", b"{}", b"0" * 64 + b"\n{}", "é\n{}".encode()])
def test_damaged_and_foreign_files_do_not_count(file: Path, kind: str, content: bytes) -> None:
    """A note without the seal of this user, and a step that the note does not name."""
    (path,) = (file.parent / "cache").glob(f"{kind}_*.json")
    before = path.read_bytes()
    path.write_bytes(content)
    assert find_known(load_params(file)) is None
    path.write_bytes(before)


def test_class_of_the_users_is_never_known(file: Path) -> None:
    assert find_known(changed(file, init__model={"class": "torch.nn:Identity"})) is None


def test_known_file_is_simulated_without_what_takes_long_to_import(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the numbers, and the pictures, of a simulation that captures."""
    changed(file, init__backend__compile_dir=str(file.parent / "new"))
    words = ["--simulate", "--num_csx=2", f"--model_dir={file.parent / 'out'}"]
    code, first, _ = run_here([f"--params={file.with_name('changed.yaml')}", *words], capsys)
    assert code == 0
    pictures = drawn_below(file.parent / "out")
    shutil.rmtree(file.parent / "out")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"--params={file}", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert numbers(done.stdout) == numbers(first)
    assert drawn_below(file.parent / "out") == pictures


def drawn_below(folder: Path) -> dict[str, bytes]:
    """Return the pictures below a folder, of which there are some."""
    pictures = {file.name: file.read_bytes() for file in folder.rglob("*.png")}
    assert pictures
    return pictures


def numbers(text: str) -> str:
    """Return what a simulation prints, without its times on the host."""
    return text[text.index("in detail") :]
