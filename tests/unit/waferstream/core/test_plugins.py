"""Names that installed packages offer: found by their metadata, imported one at a time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core import plugins
from waferstream.core.errors import ConfigError
from waferstream.core.plugins import Plugins

ENTRY_POINTS = """[waferstream.models]
mine = tiny_package.model:MINE
gpt2 = tiny_package.model:MINE
broken = tiny_package.missing:MINE
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package of a stranger's."""
    metadata = tmp_path / "tiny_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    folder = tmp_path / "tiny_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "model.py").write_text("MINE = object()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


@pytest.mark.usefixtures("package")
def test_names_of_installed_packages_are_found_without_importing_them() -> None:
    models = Plugins[object]("models")
    assert {"mine", "broken", "gpt2"} <= set(models)
    assert "mine" in models
    assert len(models) == len(list(models))
    assert "tiny_package.model" not in sys.modules
    assert models["mine"] is sys.modules["tiny_package.model"].MINE


@pytest.mark.usefixtures("package")
def test_names_of_the_zoo_stay_its_own() -> None:
    assert type(Plugins[object]("models")["gpt2"]).__name__ == "ModelFamily"


def test_names_of_the_zoo_need_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take some hundredths of a second in every run."""
    monkeypatch.setattr(plugins, "_installed", None)
    models = Plugins[object]("models")
    assert "gpt2" in models
    assert models["gpt2"]


@pytest.mark.usefixtures("package")
def test_plugin_that_cannot_be_imported_is_named() -> None:
    with raises(ConfigError, "plugin-not-importable") as caught:
        Plugins[object]("models")["broken"]
    assert "tiny_package.missing" in str(caught.value.where)


def test_unknown_name_is_answered_by_the_nearest_or_by_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = Plugins[object]("models")
    assert models.remedy("gtp2") == "did you mean 'gpt2'?"
    assert models.remedy("xyz") == "install the package that has it"
    monkeypatch.setattr(plugins, "_ZOO", "no_such_package")
    plugins._of_zoo.cache_clear()
    try:
        missing = Plugins[object]("data_processors")
        assert "pip install 'waferstream[zoo]'" in missing.remedy("xyz")
    finally:
        plugins._of_zoo.cache_clear()
