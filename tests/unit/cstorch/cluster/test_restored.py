"""A cluster starts from a checkpoint, or takes another one while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cstorch
from cstorch.cluster.restored import check_keys
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    evaluation_step,
    executor,
    losses,
    running_backend,
    training_step,
)
from tests.support.roles.local_machine import Regression
from tests.support.runs.tiny_training import Shape
from waferstream.core.errors import CheckpointError

keys = st.lists(st.sampled_from("abcdefghijkl"), unique=True)


class Checkpoints:
    """Two steps with momentum, and runs that continue from their checkpoint."""

    @staticmethod
    def write(path: Path) -> str:
        with running_backend() as backend:
            step = training_step(backend, momentum=0.9)
            losses(step, executor(2))
            cstorch.save({"model": {}, "optimizer": {}, "global_step": 2}, path)
            losses(step, executor(1))
            return backend.weights_digest()

    @staticmethod
    def go_on(
        path: Path, evaluates_first: bool = False, **options: Any
    ) -> tuple[str, int, dict[str, Any]]:
        with running_backend(Shape(3, servers=2)) as backend:
            objects = backend.restore(path, **options)
            if evaluates_first:
                losses(evaluation_step(backend), executor(1))
            losses(training_step(backend, momentum=0.9), executor(1))
            return backend.weights_digest(), backend.global_step, objects


@pytest.mark.parametrize("evaluates_first", [False, True])
def test_restore_of_all_states_continues_the_training(
    tmp_path: Path, evaluates_first: bool
) -> None:
    """The third step has the weights, momentum and number of an uninterrupted run."""
    expected = Checkpoints.write(tmp_path / "c.mdl")
    continued = Checkpoints.go_on(tmp_path / "c.mdl", evaluates_first)
    digest, step, objects = continued
    assert (digest, step, objects["global_step"]) == (expected, 3, 2)


def test_restore_of_the_model_alone_starts_at_step_0(tmp_path: Path) -> None:
    """The run has trained weights, but no momentum."""
    expected = Checkpoints.write(tmp_path / "c.mdl")
    digest, step, _ = Checkpoints.go_on(tmp_path / "c.mdl", states={"model"})
    assert (digest != expected, step) == (True, 1)


def test_restore_of_another_file_is_refused(tmp_path: Path) -> None:
    """The error comes before anything is compiled or started."""
    path = tmp_path / "c.mdl"
    path.write_bytes(b"nonsense")
    with running_backend() as backend, raises(CheckpointError, "checkpoint-damaged"):
        backend.restore(path)


def test_reload_reads_another_checkpoint(tmp_path: Path) -> None:
    """Many checkpoints can be evaluated in one process."""
    Checkpoints.write(tmp_path / "c.mdl")
    with running_backend() as backend:
        evaluate = evaluation_step(backend)
        before = losses(evaluate, executor(1))
        backend.restore(tmp_path / "c.mdl")
        backend.session.reload()
        assert losses(evaluate, executor(1)) != before


def test_restore_of_another_model_needs_strict_off(tmp_path: Path) -> None:
    """A deeper model takes the common layers; a shallower one ignores the other layers."""
    Checkpoints.write(tmp_path / "c.mdl")

    def digest(depth: int, **options: Any) -> str:
        with running_backend() as backend:
            backend.session.register(Regression(depth=depth))
            backend.restore(tmp_path / "c.mdl", states={"model"}, **options)
            losses(evaluation_step(backend), executor(1))
            return backend.weights_digest()

    for depth, difference in ((3, "missing: layers.2"), (1, "unexpected: layers.1")):
        with raises(CheckpointError, "checkpoint-keys-mismatch") as caught:
            digest(depth)
        assert difference in str(caught.value.value)
        assert digest(depth, strict=False)


def test_refused_checkpoint_can_be_restored_leniently(tmp_path: Path) -> None:
    """The restore is repeated although the first attempt had started a cluster."""
    Checkpoints.write(tmp_path / "c.mdl")
    seen = []
    for is_refused_first in (False, True):
        with running_backend() as backend:
            backend.session.register(Regression(depth=3))
            evaluate = evaluation_step(backend)
            if is_refused_first:
                backend.restore(tmp_path / "c.mdl", states={"model"})
                with raises(CheckpointError, "checkpoint-keys-mismatch"):
                    losses(evaluate, executor(1))
            backend.restore(tmp_path / "c.mdl", states={"model"}, strict=False)
            seen += losses(evaluate, executor(1))
    assert seen[0] == seen[1]


@given(keys, keys)
def test_check_keys_accepts_equal_keys_only(expected: list[str], found: list[str]) -> None:
    """In any order; one more or one less is refused."""
    try:
        check_keys(expected, found, strict=True, where="c.mdl")
    except CheckpointError:
        assert set(expected) != set(found)
    else:
        assert set(expected) == set(found)


def test_strict_check_keys_names_the_difference() -> None:
    """It shows both lists, shortened."""
    with raises(CheckpointError, "checkpoint-keys-mismatch") as caught:
        check_keys(["a", "b"], ["b", *"uvwxyz"], strict=True, where="c.mdl")
    assert caught.value.where == "c.mdl"
    assert caught.value.value == "missing: a; unexpected: u, v, w, x, y, ... (6 in total)"


def test_check_keys_takes_optional_keys_or_not() -> None:
    """Tied names and buffers may be missing, and are not unexpected."""
    for found in (["a"], ["a", "tied"]):
        check_keys(["a"], found, optional=["tied"], strict=True, where="c.mdl")
    with raises(CheckpointError, "checkpoint-keys-mismatch"):
        check_keys(["a"], ["a", "other"], optional=["tied"], strict=True, where="c.mdl")


def test_lenient_check_keys_warns(caplog: pytest.LogCaptureFixture) -> None:
    """The difference goes to the log of the run."""
    check_keys(["a"], ["b"], strict=False, where="c.mdl")
    assert "missing: a; unexpected: b" in caplog.text
    assert caplog.records[0].name == "waferstream"
