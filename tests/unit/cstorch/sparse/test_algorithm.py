"""Algorithms in a user's program: applied, seen, saved, and refused where they make no sense."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import cstorch
from cstorch import sparse
from cstorch.optim.optimizer import Optimizer
from cstorch.recording.recorder import names_of
from tests.support.errors import raises
from tests.support.programs.cstorch_program import executor, running_backend
from tests.support.roles.local_machine import Regression
from waferstream.core.errors import CheckpointError, ConfigError, WaferStreamError

WEIGHTS = {"layers.0.weight", "layers.1.weight"}


class Program:
    """A model with sparse weights, and a step that trains it."""

    def __init__(
        self, backend: cstorch.Backend, sparsity: sparse.SparsityAlgorithm | None = None
    ) -> None:
        self.backend = backend
        self.model = cstorch.compile(Regression(), backend)
        self.optimizer: Optimizer = cstorch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.sparsity = sparsity or sparse.configure(0.5)
        self.model.apply(self.sparsity)
        self.optimizer.apply(self.sparsity)

        @cstorch.trace
        def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            loss: torch.Tensor = self.model(**batch)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            return loss

        self._step = step

    def train(self, steps: int = 2, save: Path | None = None) -> None:
        loop = executor(steps, checkpoint_steps=steps if save else None)
        for batch in loop:
            self._step(batch)
            self._save(save)

    @cstorch.checkpoint_closure
    def _save(self, path: Path) -> None:
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        state["sparsity"] = self.sparsity.state_dict()
        cstorch.save({**state, "global_step": self.backend.global_step}, path)

    def weight(self, name: str = "layers.0.weight") -> torch.Tensor:
        return dict(self.model.named_parameters())[name].detach().clone()


@contextmanager
def program(algorithm: sparse.SparsityAlgorithm | None = None) -> Iterator[Program]:
    with running_backend() as backend:
        yield Program(backend, algorithm)


def test_default_filter_prunes_matrices_only() -> None:
    """Half of each weight is zero after training, and no bias is."""
    with program() as made:
        made.train()
        assert made.sparsity.state_dict().keys() == WEIGHTS
        for name, mask in made.sparsity.state_dict().items():
            assert int(mask.sum()) == 8
            assert torch.equal(made.weight(name) != 0, mask)
        parameters = dict(made.model.named_parameters())
        state = made.optimizer.state[parameters["layers.0.weight"]]
        assert not state["exp_avg"][made.weight() == 0].any()
        assert bool(made.weight("layers.0.bias").all())


def test_algorithm_alone_prunes_every_parameter() -> None:
    with program(sparse.Static(0.5)) as made:
        made.train()
        assert made.sparsity.state_dict().keys() == WEIGHTS | {"layers.0.bias", "layers.1.bias"}


def test_groups_have_their_own_levels() -> None:
    """A parameter belongs to the first group that selects it."""
    groups = sparse.configure(
        [{"sparsity": 0.75, "param_filter": "layers.0.*"}, {"sparsity": 0.25, "param_filter": "*"}]
    )
    with program(groups) as made:
        made.train()
        kept = {name: int(mask.sum()) for name, mask in made.sparsity.state_dict().items()}
        assert kept == {
            "layers.0.weight": 4,
            "layers.0.bias": 1,
            "layers.1.weight": 12,
            "layers.1.bias": 3,
        }


def test_function_makes_the_first_mask() -> None:
    def diagonal(parameter: torch.Tensor, _share: torch.Tensor) -> torch.Tensor:
        return torch.eye(*parameter.shape).bool()

    with program(sparse.Group({"*.weight": sparse.Static(0.75, diagonal)})) as made:
        made.train()
        assert torch.equal(made.weight() != 0, torch.eye(4).bool())


def test_function_of_the_step_is_a_schedule() -> None:
    """A quarter more of the weights becomes zero with every step."""
    pruning = sparse.GMP(lambda step: 0.25 * step)
    with program(sparse.Group({"*.weight": pruning})) as made:
        made.train(3)
        assert {int(mask.sum()) for mask in made.sparsity.state_dict().values()} == {4}


def test_hooks_see_target_and_actual_sparsity() -> None:
    seen: dict[str, list[float]] = {"target": [], "actual": []}
    pruning = sparse.GMP({"type": "linear", "init": 0.0, "slope": 0.25})
    groups = sparse.Group({"layers.0.weight": pruning})
    groups.register_target_sparsity_hook(lambda _, name, x: seen["target"].append(float(x)))
    handle = groups.register_computed_sparsity_hook(
        lambda _, name, x: seen["actual"].append(float(x))
    )
    with program(groups) as made:
        made.train(2)
        assert seen == {"target": [0.25, 0.5], "actual": [0.25, 0.5]}
        handle.remove()
        made.train(1)
        assert len(seen["actual"]) == 2


def test_masks_survive_a_checkpoint_and_a_state_dict(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.mdl"
    with program() as made:
        made.train(save=path)
        masks, weight = made.sparsity.state_dict(), made.weight()
    saved = cstorch.load(path)["sparsity"]
    assert {name: mask.tolist() for name, mask in saved.items()} == {
        name: mask.tolist() for name, mask in masks.items()
    }
    with running_backend(seed=7) as backend:  # another seed: its own masks would differ
        backend.restore(path)
        assert torch.equal(_trained(backend) != 0, weight != 0)
    with running_backend(seed=7) as backend:
        made = Program(backend)
        made.sparsity.load_state_dict(saved)
        made.train(1)
        assert torch.equal(made.weight() != 0, weight != 0)


def _trained(backend: cstorch.Backend) -> torch.Tensor:
    made = Program(backend)
    made.train(1)
    return made.weight()


def test_checkpoint_of_another_density_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.mdl"
    with program() as made:
        made.train(save=path)
    with running_backend() as backend:
        backend.restore(path)
        with raises(CheckpointError, "checkpoint-sparsity-mismatch"):
            Program(backend, sparse.configure(0.75)).train(1)


def test_cpu_backend_trains_the_same_sparse_weights() -> None:
    """From the first step on; a batch is one micro-batch there, so last bits differ."""
    found = []
    for device in ("CSX", "CPU"):
        with running_backend(device=device) as backend:
            made = Program(backend)
            made.train(3)
            found.append(made.weight())
    assert torch.equal(found[0] != 0, found[1] != 0)
    assert int((found[0] != 0).sum()) == 8
    assert torch.allclose(found[0], found[1], atol=1e-5)


REFUSED: Mapping[str, tuple[Any, str]] = {
    "sparsity above 1": (lambda: sparse.Static(1.5), "out-of-range"),
    "sparsity below 0": (lambda: sparse.configure(-0.1), "out-of-range"),
    "no sparsity": (sparse.Static, "missing-key"),
    "unknown init": (lambda: sparse.Static(0.5, "rnadom"), "init-method-unknown"),
    "constant GMP": (lambda: sparse.GMP(0.5), "gmp-without-schedule"),
    "own algorithm": (lambda: sparse.DynamicSparsityAlgorithm(0.5), "sparsity-algorithm-unknown"),
    "both balances": (
        lambda: sparse.RigL(0.5, balance_in_groups=2, balance_out_groups=2),
        "balanced-twice",
    ),
    "no group": (lambda: sparse.RigL(0.5, balance_out_groups=0), "balanced-twice"),
    "a group of groups": (
        lambda: sparse.Group({"*": sparse.configure(0.5)}),
        "not-a-sparsity-algorithm",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_arguments_are_refused(case: str) -> None:
    make, code = REFUSED[case]
    with raises(ConfigError, code):
        make()


def test_unknown_schedule_or_update_is_refused() -> None:
    for wrong in (
        {"sparsity": {"type": "expp", "init": 0.5}},
        {"algorithm": "rigl", "sparsity": 0.5, "update": {"frq": 3}},
        {"algorithm": "rigl", "sparsity": 0.5, "update": {"freq": 3, "start": 5, "stop": 4}},
        {"algorithm": "static", "sparsity": 0.5, "update": {"freq": 3}},
    ):
        with pytest.raises(ConfigError):
            sparse.configure(wrong)


def test_filter_that_matches_nothing_is_refused() -> None:
    with running_backend() as backend, raises(ConfigError, "sparsity-filter-matches-nothing"):
        Program(backend, sparse.configure({"sparsity": 0.5, "param_filter": "layer.*"}))


def test_balance_that_does_not_divide_is_refused() -> None:
    rigl = sparse.Group({"*.weight": sparse.RigL(0.5, balance_in_groups=3)})
    with program(rigl) as made, raises(ConfigError, "balance-not-divisible"):
        made.train(1)


def test_mask_of_another_shape_is_refused() -> None:
    with program() as made:
        masks = {name: torch.ones(4, 5) for name in WEIGHTS}
        with raises(ConfigError, "mask-shape-mismatch"):
            made.sparsity.load_state_dict(masks)
        with raises(ConfigError, "masks-mismatch"):
            made.sparsity.load_state_dict({})


def test_mask_is_not_read_before_training() -> None:
    with program() as made, raises(WaferStreamError, "mask-before-training"):
        made.sparsity.state_dict()


def test_half_applied_sparsity_is_refused() -> None:
    """To the model only, or to the optimizer only."""
    with running_backend() as backend:
        model = cstorch.compile(Regression(), backend)
        optimizer: Optimizer = cstorch.optim.AdamW(model.parameters(), lr=0.1)
        with raises(ConfigError, "sparsity-without-model"):
            optimizer.apply(sparse.Static(0.5))
        algorithm = sparse.Static(0.5)
        algorithm.apply(model)
        names = names_of(model)
        with raises(ConfigError, "sparsity-without-optimizer"):
            optimizer.spec(names)
        algorithm.apply(optimizer)
        assert len(optimizer.spec(names).sparsity) == 4
