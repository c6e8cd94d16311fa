"""The digest of sources is that of the imported code."""

import os
from pathlib import Path

from waferstream.host.sources import sources_digest


def package(root: Path, **modules: str) -> str:
    """Write the modules of a package, long ago, and return their digest."""
    for name, source in modules.items():
        file = root / "package" / "deep" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
        os.utime(file, (0, 0))
    return sources_digest("package", root=root)


def test_equal_sources_have_one_digest(tmp_path: Path) -> None:
    """Wherever they lie."""
    one, other = (package(tmp_path / name, a="x = 1", b="") for name in ("one", "other"))
    assert one == other


def test_another_source_has_another_digest(tmp_path: Path) -> None:
    """Also where the same text stands in other files."""
    variants = [{"a": "x = 1"}, {"a": "x = 2"}, {"b": "x = 1"}, {"a": "x = 1", "b": ""}]
    digests = [package(tmp_path / str(n), **each) for n, each in enumerate(variants)]
    assert len(set(digests)) == len(variants)


def test_module_written_after_the_start_is_found_by_nobody(tmp_path: Path) -> None:
    """What was imported may be its former text."""
    package(tmp_path / "one", a="x = 1")
    digests = []
    for name in ("two", "three"):
        file = tmp_path / name / "package" / "a.py"
        file.parent.mkdir(parents=True)
        file.write_text("x = 1")
        digests.append(sources_digest("package", root=tmp_path / name))
    assert digests[0] != digests[1]
