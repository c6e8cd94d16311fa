"""The working directory as it travels, there and back."""

from __future__ import annotations

import io
import stat
import zipfile
from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.management.client import package as package_module
from waferstream.management.client.package import pack
from waferstream.management.manager.packages import Packages, unpack


def packed(folder: Path, target: Path) -> list[str]:
    pack(folder, target)
    with zipfile.ZipFile(target) as archive:
        return archive.namelist()


def test_what_is_ignored_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "work"
    for name in ("train.py", "data/big.bin", "data/small.txt", ".git/x", "model_dir/log", "a.mdl"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (folder / "out").symlink_to("/etc/passwd")
    (folder / "within").symlink_to(folder / "train.py")
    (folder / ".waferstreamignore").write_text("*.bin\n")
    (folder / ".gitignore").write_text("data/\n")
    monkeypatch.chdir(folder)
    names = packed(Path(), tmp_path / "p.zip")
    assert names == [".gitignore", ".waferstreamignore", "data/small.txt", "train.py", "within"]


def test_same_files_are_the_same_package(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f.py").write_text("x = 1")
        pack(tmp_path / name, tmp_path / f"{name}.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_package_returns_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    script = tmp_path / "work" / "run.sh"
    script.write_text("echo")
    script.chmod(0o755)
    pack(tmp_path / "work", tmp_path / "p.zip")
    packages = Packages(tmp_path / "packages")
    digest = packages.keep(tmp_path / "p.zip")
    unpack(packages.path(digest), tmp_path / "there")
    assert (tmp_path / "there" / "run.sh").read_text() == "echo"


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_module, "MOST_BYTES", 3)
    (tmp_path / "f").write_text("four")
    with raises(ConfigError, "package-too-large"):
        pack(tmp_path, tmp_path / "p.zip")


def _zip(**entries: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in entries.items():
            archive.writestr(name, text)
    return content.getvalue()


def _link() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc")
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"no zip", "package-broken"),
        (_zip(**{"../up": "x"}), "path-escapes"),
        (_zip(**{"/etc/passwd": "x"}), "path-escapes"),
        (_link(), "path-escapes"),
    ],
    ids=["no zip", "above", "absolute", "link"],  # else the time is in them
)
def test_broken_and_hostile_packages_are_refused(tmp_path: Path, content: bytes, code: str) -> None:
    path = tmp_path / "p.zip"
    path.write_bytes(content)
    with raises(ConfigError, code):
        Packages(tmp_path / "packages").keep(path)
    assert list((tmp_path / "packages").iterdir()) == []


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "0" * 64, "G" * 64])
def test_only_uploaded_packages_are_found(tmp_path: Path, digest: str) -> None:
    with raises(ConfigError, "package-not-uploaded"):
        Packages(tmp_path).path(digest)
