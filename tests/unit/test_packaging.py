"""What is installed: the versions, the files of the packages, the images."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from fnmatch import fnmatch
from functools import partial
from importlib.metadata import version
from pathlib import Path
from shutil import copyfile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.runs.tiny_run import write_run
from waferstream.version import VERSION

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT, ROOT / "modelzoo", ROOT / "waferstream_compat")
DISTRIBUTIONS = [
    tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")) for folder in FOLDERS
]
PROJECT = DISTRIBUTIONS[0]
LOCK = {
    canonicalize_name(name): pinned
    for name, _, pinned in (
        line.partition("==")
        for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
}
DOCUMENTS = ("README.md", "pyproject.toml", "*.proto")  # of no use without the sources


def _tracked() -> list[Path]:
    names = subprocess.run(
        ("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [Path(name) for name in names.split("\0") if name and (ROOT / name).is_file()]


def test_lock_has_a_version_in_the_range_of_every_dependency() -> None:
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    for text in (*project["dependencies"], *extras["train"], *extras["dev"]):
        requirement = Requirement(text)
        if requirement.name == project["name"]:
            continue  # another extra
        assert requirement.specifier.contains(LOCK[canonicalize_name(requirement.name)]), text


def test_tests_run_with_the_versions_of_the_lock() -> None:
    """Bits depend on torch; its version may name the kind of build."""
    for name in ("torch", "ray", "numpy"):
        assert version(name).partition("+")[0] == LOCK[canonicalize_name(name)]


def test_wheel_has_every_file_that_the_packages_read() -> None:
    tools = [each["tool"]["setuptools"] for each in DISTRIBUTIONS]
    packages = [package for tool in tools for package in tool["packages"]["find"]["include"]]
    patterns = [
        f"{package.replace('.', '/')}/{pattern}"
        for tool in tools
        for package, found in tool.get("package-data", {}).items()
        for pattern in found
    ]
    for path in _tracked():
        is_ours = any(fnmatch(path.parts[0], pattern) for pattern in packages)
        if is_ours and path.suffix != ".py" and len(path.parts) > 1:
            is_document = any(fnmatch(path.name, pattern) for pattern in DOCUMENTS)
            assert is_document or any(fnmatch(str(path), p) for p in patterns), path


def test_extras_name_the_other_distributions_of_the_repository() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    zoo, compat = (each["project"] for each in DISTRIBUTIONS[1:])
    assert (extras["zoo"], extras["compat"]) == ([zoo["name"]], [compat["name"]])
    for each in (zoo, compat):
        assert each["dependencies"] == [PROJECT["project"]["name"]]
        assert each["requires-python"] == PROJECT["project"]["requires-python"]


def test_images_and_development_container_use_a_supported_python() -> None:
    supported = Requirement(f"python{PROJECT['project']['requires-python']}").specifier
    for path in (ROOT / "deploy" / "Dockerfile", ROOT / ".devcontainer" / "Dockerfile"):
        (found,) = re.findall(r"^FROM python:([\d.]+)-slim$", path.read_text(), re.MULTILINE)
        assert supported.contains(f"{found}.0")
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert container["postCreateCommand"] == "make .venv/.installed"
    for schema in container["customizations"]["vscode"]["settings"]["yaml.schemas"]:
        assert (ROOT / schema).is_file()


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_wheel_runs_from_another_folder(tmp_path: Path) -> None:
    """Build, install to a folder of its own, validate and simulate far from the sources."""
    source, installed, work = (tmp_path / name for name in ("source", "installed", "work"))
    for path in _tracked():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        copyfile(ROOT / path, source / path)
    pip = (sys.executable, "-m", "pip", "--quiet")
    places = [str(source / folder.relative_to(ROOT)) for folder in FOLDERS]
    _run(*pip, "wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={tmp_path}", *places)
    core, zoo, compat = (
        tmp_path / f"waferstream{end}-{VERSION}-py3-none-any.whl" for end in ("", "_zoo", "_compat")
    )
    work.mkdir()
    flags = write_run(work)
    (work / "program.py").write_text("import cerebras.pytorch\n")
    program = "import sys, waferstream.cli.entry as e; print(e.__file__); sys.exit(e.run())"
    # Without site no .pth file leads to the sources.
    search = f"{installed}{os.pathsep}{sysconfig.get_path('purelib')}"
    start = partial(_run, sys.executable, "-S", "-c", program, cwd=work, path=search)
    install = (*pip, "install", "--no-deps", f"--target={installed}")
    _run(*install, str(core))
    assert "pip install 'waferstream[zoo]'" in start(*flags, "--validate_only", code=1)
    assert "pip install 'waferstream[compat]'" in start("exec", "program.py", code=1)
    _run(*install, str(zoo), str(compat))
    for words in ((*flags, "--validate_only"), (*flags, "--simulate"), ("exec", "program.py")):
        assert start(*words).startswith(str(installed))
    assert (work / "model_dir" / "simulation" / "simulation.html").is_file()


def _run(*command: str, cwd: Path | None = None, path: str = "", code: int = 0) -> str:
    """Run a command with no path to the sources; return what it prints."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_files_of_the_user_are_in_nobodys_way(tmp_path: Path) -> None:
    """A program's own folder comes first on the search path."""
    own = ("timing", "core", "validation", "simulator", "baselines", "machine", "compiler", "host")
    for name in own:
        (tmp_path / f"{name}.py").write_text("raise AssertionError(__file__)\n")
    program = tmp_path / "program.py"
    program.write_text("import cstorch, memoryx.server, waferstream.cli.run\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, program], cwd=tmp_path, check=True, env=environment)
