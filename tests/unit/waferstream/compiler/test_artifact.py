"""The compile cache: the same step is compiled once; a damaged artifact costs a compile."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.errors import raises
from tests.support.programs.plain_steps import backward_step
from tests.support.roles.local_machine import BF16, FP32, Regression, compile_model, random_batches
from waferstream.compiler.artifact import ArtifactCache, schedule_listing
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.compiled import Compiled
from waferstream.core.errors import ConfigError
from waferstream.core.program.program import Program
from waferstream.core.program.schedule import collected_by, schedule_of, streamed_by
from waferstream.core.program.stream_plan import plan_streams

REQUEST = CompileRequest(FP32, micro_batch_size=2, num_micro_batches=2, target="2 systems")


def compiled(
    cache: ArtifactCache | None,
    request: CompileRequest = REQUEST,
    model: nn.Module | None = None,
    scale: float = 1.0,
) -> tuple[Compiled, bool]:
    """Return the artifact, and whether it was found in the cache."""
    model = model or Regression()
    step = backward_step(model, lambda loss: loss * scale)
    batch = random_batches(1, request.micro_batch_size)[0]
    return compile_step(step, model, list(batch.items()), request, cache)


@pytest.fixture
def cache(tmp_path: Path) -> ArtifactCache:
    return ArtifactCache(tmp_path / "deep" / "cache")


def test_load_finds_the_same_step(cache: ArtifactCache) -> None:
    """The cache returns the stored program and kernels."""
    first, was_found = compiled(cache)
    assert not was_found
    again, was_found = compiled(cache)
    assert was_found
    assert again.program == first.program
    assert [kernel.text for kernel in again.kernels] == [kernel.text for kernel in first.kernels]


@pytest.mark.parametrize(
    "change",
    [
        {"request": replace(REQUEST, precision=BF16)},
        {"request": replace(REQUEST, target="4 systems")},
        {"request": replace(REQUEST, num_micro_batches=4)},
        {"request": replace(REQUEST, disabled_passes=("drop_aliases",))},
        {"request": replace(REQUEST, micro_batch_size=3)},
        {"request": replace(REQUEST, num_short=1)},
        {"model": Regression(depth=3)},
        {"scale": 2.0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_load_does_not_find_another_step(change: dict[str, Any], cache: ArtifactCache) -> None:
    """Precision, cluster, batch, passes, shapes, model and arithmetic are all in the digest."""
    first, _ = compiled(cache)
    other, was_found = compiled(cache, **change)
    assert not was_found
    assert other.program.digest != first.program.digest


def test_digest_ignores_weights(cache: ArtifactCache) -> None:
    """The program is the same for every value of the parameters."""
    compiled(cache)
    trained = Regression()
    with torch.no_grad():
        trained.layers[0].weight.add_(1)
    assert compiled(cache, model=trained)[1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: b"nonsense",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole.replace(b"torch.ops.aten.tanh", b"torch.ops.aten.cosh"),
    ],
    ids=["empty", "nonsense", "cut", "changed kernel"],
)
def test_damaged_artifact_is_compiled_again(
    damage: Callable[[bytes], bytes], cache: ArtifactCache
) -> None:
    """With a warning that names the file; afterwards the cache is whole again."""
    first, _ = compiled(cache)
    file = cache.root / first.program.digest / "compiled.json"
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert file.read_bytes() != whole
    with pytest.warns(UserWarning, match=r"compiled\.json"):
        again, was_found = compiled(cache)
    assert not was_found
    assert again.program == first.program
    assert compiled(cache)[1]


def test_artifact_of_another_step_is_ignored(cache: ArtifactCache) -> None:
    """A file copied to the folder of another digest is not what that digest asks for."""
    first, _ = compiled(cache)
    other, _ = compiled(cache, scale=2.0)
    files = [cache.root / one.program.digest / "compiled.json" for one in (first, other)]
    files[0].write_bytes(files[1].read_bytes())
    with pytest.warns(UserWarning, match=r"compiled\.json"):
        assert cache.load(first.program.digest) is None


def test_foreign_folder_is_replaced(cache: ArtifactCache) -> None:
    """A folder without ``compiled.json``, as an earlier version wrote it."""
    digest = compiled(None)[0].program.digest
    (cache.root / digest).mkdir(parents=True)
    (cache.root / digest / "compiled.pkl").write_bytes(b"never read")
    with pytest.warns(UserWarning, match=r"compiled\.json"):
        assert not compiled(cache)[1]
    assert compiled(cache)[1]


def test_folder_holds_schedule_and_kernels_as_text(cache: ArtifactCache) -> None:
    """Beside the JSON, for people."""
    first, _ = compiled(cache)
    folder = cache.root / first.program.digest
    assert (folder / "schedule.txt").read_text()
    text = (folder / "kernels.py").read_text()
    assert text.count("# segment ") == len(first.program.segments)
    compile(text, "kernels.py", "exec")


def test_concurrent_stores_leave_one_artifact(cache: ArtifactCache) -> None:
    """One store wins, none fails, and no partial folder is left."""
    first, _ = compiled(None)
    with ThreadPoolExecutor(8) as threads:
        targets = set(threads.map(lambda _: cache.store(first), range(16)))
    assert targets == {cache.root / first.program.digest}
    assert [path.name for path in cache.root.iterdir()] == [first.program.digest]
    found = cache.load(first.program.digest)
    assert found is not None
    assert found.program == first.program


def test_full_disk_does_not_fail_a_compile(
    cache: ArtifactCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is compiled; the cache stays as it was."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    first, was_found = compiled(cache)
    assert not was_found
    assert first.program.segments
    assert list(cache.root.iterdir()) == []


def test_unwritable_compile_dir_is_refused(tmp_path: Path) -> None:
    """The error names the path."""
    (tmp_path / "file").write_text("")
    with raises(ConfigError, "compile-dir-not-writable") as caught:
        compiled(ArtifactCache(tmp_path / "file"))
    assert caught.value.where == str(tmp_path / "file")


def test_load_of_an_empty_cache_is_silent(cache: ArtifactCache) -> None:
    """No folder, no artifact, no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.load("cs_1") is None
    assert not cache.root.exists()


def test_start_leads_to_its_artifact_while_both_are_whole(cache: ArtifactCache) -> None:
    """A changed file, that of another key, and one whose artifact is gone lead nowhere."""
    artifact, _ = compiled(cache)
    assert cache.load_start("key", REQUEST.target) is None
    for key in ("key", "other"):
        cache.store_start(key, artifact.program.digest, ["note"])
    assert cache.load_start("key", REQUEST.target) == (artifact, ["note"], True)
    file, other = (next(cache.root.glob(f"start_{key}.*")) for key in ("key", "other"))
    whole = file.read_bytes()
    for text in (
        whole[:-1],
        whole.replace(b"cs_", b"cs_1"),
        b"",
        b"1",
        b"\xff",
        other.read_bytes(),
    ):
        file.write_bytes(text)
        assert cache.load_start("key", REQUEST.target) is None
    file.write_bytes(whole)
    shutil.rmtree(cache.root / artifact.program.digest)
    assert cache.load_start("key", REQUEST.target) is None


def test_start_gives_the_artifact_that_another_cluster_compiles(cache: ArtifactCache) -> None:
    """Under the same name, with the same kernels. It is new the first time, as after a compile."""
    request = replace(REQUEST, target="4 systems")
    cache.store_start("key", compiled(cache)[0].program.digest)
    derived = [cache.load_start("key", request.target) for _ in range(2)]
    recorded, was_found = compiled(cache, request)
    assert was_found
    assert derived == [(recorded, [], False), (recorded, [], True)]
    shutil.rmtree(cache.root / recorded.program.digest)
    recorded, was_found = compiled(cache, request)
    assert not was_found
    assert derived[0] == (recorded, [], False)


def test_start_of_a_stranger_removes_nothing(
    cache: ArtifactCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the cache names a folder, which is removed when it is no artifact."""
    outside = tmp_path / "outside"
    outside.mkdir()
    cache.root.mkdir(parents=True, exist_ok=True)
    with monkeypatch.context() as stranger:
        stranger.setenv("WAFERSTREAM_STATE", str(tmp_path / "state of another user"))
        cache.store_start("key", str(outside))
    assert cache.load_start("key", REQUEST.target) is None
    assert outside.is_dir()


@pytest.fixture(scope="module")
def program() -> Program:
    return compile_model(Regression(width=64), random_batches(1, 6, 64)[0], 3).program


@pytest.mark.parametrize("num_servers", [1, 2])
def test_listing_has_a_line_per_action(program: Program, num_servers: int) -> None:
    """The headline, the round of a node, and the round of every server."""
    steps = schedule_of(program, plan_streams(program, num_servers))
    lines = schedule_listing(program, num_servers).splitlines()
    node = sum(
        1 + 2 * len(s.weights) + bool(s.stashes) + bool(s.drops) + len(s.gradients) for s in steps
    )
    servers = [
        len(streamed_by(steps, server)) + 2 * len(collected_by(steps, server))
        for server in range(num_servers)
    ]
    heads = [index for index, line in enumerate(lines) if line.endswith(":")]
    bounds = [*heads, len(lines)]
    assert [stop - start - 1 for start, stop in pairwise(bounds)] == [node, *servers]


def test_listing_headline_describes_the_program(program: Program) -> None:
    """Digest, size, dtype and batch at a glance."""
    headline = schedule_listing(program).splitlines()[0]
    for part in (
        program.digest,
        "train step",
        "8,320 parameters",
        "float32",
        "3 micro-batches of 2",
    ):
        assert part in headline


def test_listing_is_deterministic(program: Program) -> None:
    """So that two artifacts can be compared with diff."""
    assert schedule_listing(program) == schedule_listing(program)


@pytest.mark.parametrize(
    ("verb", "parts"),
    [
        ("stream weights", ["layers.0 forward", "2 tensors", "16.2 KiB", "server 0"]),
        ("run kernel", ["layers.0 forward", "ops", "GFLOP"]),
        ("stash", ["1 values", "512 B"]),
        ("drop values", ["input_1"]),
        ("send gradients", ["backward", "tensors"]),
        ("update masters", ["backward", "tensors"]),
    ],
)
def test_listing_line_names_action_and_sizes(program: Program, verb: str, parts: list[str]) -> None:
    lines = [line for line in schedule_listing(program).splitlines() if line[2:].startswith(verb)]
    assert all(part in lines[0] for part in parts), lines
