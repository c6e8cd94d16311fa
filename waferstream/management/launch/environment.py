"""Packages of a launch: a virtual environment for each set of them, over what the host has."""

from __future__ import annotations

import hashlib
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from waferstream.host.locks import locked

_KEPT = "environments"
_LIMIT_S = 1800.0  # for another launch that installs the same packages


def commands(packages: Sequence[str], folder: Path) -> tuple[list[list[str]], str]:
    """Return the commands that install packages, and the interpreter that finds them then.

    Args:
        packages: Requirements of pip; without any, the interpreter is that of this process.
        folder: Keeps the environments.
    """
    if not packages:
        return [], sys.executable
    digest = hashlib.sha256("\n".join(sorted(packages)).encode()).hexdigest()[:16]
    place = folder / f".{_KEPT}" / digest
    words = [sys.executable, "-P", "-m", __name__, str(place), *packages]
    return [words], str(place / "bin" / "python")


def prepare(place: Path, packages: Sequence[str]) -> int:
    """Make the environment unless it is there; return the exit code of pip.

    Its interpreter finds the packages of this one, too, which pip therefore does not install again.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with locked(place.with_suffix(".lock"), _LIMIT_S):
        ready = place / "ready"
        if ready.exists():
            return 0
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place, with_pip=False)
        found = next(place.glob("lib/python*/site-packages"))
        lines = "".join(f"import site; site.addsitedir({each!r})\n" for each in _own_packages())
        (found / "host.pth").write_text(lines)
        pip = [sys.executable, "-P", "-m", "pip", "--python", str(place / "bin" / "python")]
        options = ["--quiet", "--disable-pip-version-check"]
        code = subprocess.run([*pip, "install", *options, "--", *packages], check=False).returncode
        if code == 0:
            ready.touch()
        return code


def _own_packages() -> list[str]:
    """Return the folders in which this interpreter finds packages."""
    return [each for each in site.getsitepackages() if Path(each).is_dir()]


if __name__ == "__main__":
    sys.exit(prepare(Path(sys.argv[1]), sys.argv[2:]))
