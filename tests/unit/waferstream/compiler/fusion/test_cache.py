"""Fused kernels in the compile cache: whole, unchanged and of this processor, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from waferstream.compiler.fusion import cache as module
from waferstream.compiler.fusion.cache import Entry, FusionCache, key_of
from waferstream.compiler.fusion.regions import Normalized
from waferstream.core.program.fused import FusedKernel

FUSED = FusedKernel("def forward(self, a0):\n    return (a0,)", (("loop", 2),), b"\0code", "cpu")
ENTRY = Entry((("float32", (2, 3), (3, 1)), None), FUSED, "", 2.0, 1.0)
OPERANDS = (("float32", (2, 3), (3, 1)),)
TEXT = Normalized(FUSED.text, (), {})


def test_entry_comes_back_as_it_was_stored(tmp_path: Path) -> None:
    cache = FusionCache(tmp_path)
    cache.store("key", ENTRY)
    assert cache.load("key") == ENTRY
    assert cache.load("other") is None


@pytest.mark.parametrize("part", ["shared_object", "text"])
def test_changed_entry_is_not_loaded(
    tmp_path: Path, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache = FusionCache(tmp_path)
    cache.store("key", ENTRY)
    (file,) = tmp_path.iterdir()
    data = json.loads(file.read_text())
    data["content"]["fused"][part] = "AAAA"
    file.write_text(json.dumps(data))
    assert cache.load("key") is None
    assert len(caplog.records) == 1
    cache.store("key", ENTRY)
    assert cache.load("key") == ENTRY


def test_half_a_file_is_not_loaded(tmp_path: Path) -> None:
    cache = FusionCache(tmp_path)
    cache.store("key", ENTRY)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    assert cache.load("key") is None


def test_entry_under_another_key_is_not_loaded(tmp_path: Path) -> None:
    cache = FusionCache(tmp_path)
    cache.store("key", ENTRY)
    (file,) = tmp_path.iterdir()
    file.rename(tmp_path / "fused_other.json")
    assert cache.load("other") is None


@pytest.mark.parametrize("what", ["processor", "compiler"])
def test_key_names_processor_and_compiler(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(TEXT, OPERANDS)
    assert key_of(TEXT, OPERANDS) == before
    monkeypatch.setattr(module, what, lambda: "another")
    assert key_of(TEXT, OPERANDS) != before


def test_key_names_operands() -> None:
    assert key_of(TEXT, OPERANDS) != key_of(TEXT, (("float32", (2, 3), (1, 2)),))
