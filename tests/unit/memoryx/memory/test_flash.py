"""Flash: the same bits as DRAM, a bounded resident set, and errors before anything runs."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from appliance.faults.strike import full_disk
from memoryx.memory.flash import FlashMemory, check_bound
from memoryx.memory.flash_spec import FlashSpec
from memoryx.optim.rule import RULES, rule_named
from memoryx.store.journal import Journal
from memoryx.store.persistence import Persistence
from memoryx.store.store import WeightStore
from tests.support.errors import raises
from waferstream.checkpoint import CLUSTER_STATES
from waferstream.checkpoint.parts import read_parts
from waferstream.checkpoint.writer import reserve_tensors, write_metadata
from waferstream.core.errors import ApplianceResourceExhausted, ConfigError
from waferstream.core.optimizer import OptimizerSpec, ParamGroup
from waferstream.core.program.program import TensorSpec

MIB = 1 << 20
SPECS = [TensorSpec(f"w{i}", (64, 32 + 7 * i), "float32") for i in range(6)]
LARGE = [TensorSpec(f"w{i}", (MIB // 4,), "float32") for i in range(32)]


def flash(folder: Path, resident_bytes: int = 3 * 64 * 80 * 4) -> FlashMemory:
    return FlashMemory(FlashSpec(path=folder, resident_bytes=resident_bytes))


def trained(rule: str, **hyper: Any) -> OptimizerSpec:
    arguments = {**dict(rule_named(rule).Arguments()), "lr": 0.01, **hyper}
    return OptimizerSpec(rule, (ParamGroup(tuple(spec.name for spec in SPECS), arguments),))


def train(store: WeightStore, steps: range) -> dict[str, torch.Tensor]:
    """Update everything, and return copies of masters and state."""
    for step in steps:
        torch.manual_seed(step)
        store.update({spec.name: torch.randn(spec.shape) for spec in SPECS}, step)
    return contents(store)


def contents(store: WeightStore) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for state in CLUSTER_STATES:
        found.update({n: t.clone() for n, t in store.tensors(state).items()})
    return found


def assert_same(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_flash_has_the_bits_of_dram(rule: str, tmp_path: Path) -> None:
    """For every rule, its initial state included, though only a part is in DRAM at a time."""
    hyper = {"momentum": 0.9} if rule in ("SGD", "RMSprop") else {}
    ends = []
    for memory in (None, flash(tmp_path)):
        store = WeightStore(SPECS, memory)
        store.fill({spec.name: torch.ones(spec.shape) for spec in SPECS})
        store.train_with(trained(rule, **hyper))
        begun = contents(store)
        ends.append({**train(store, range(1, 4)), **{f"begun.{n}": t for n, t in begun.items()}})
    assert_same(*ends)


def test_checkpoint_in_flash_is_that_of_dram(tmp_path: Path) -> None:
    """Saved in the background while updates go on, and read by a store of the other kind."""
    optimizer = trained("AdamW")
    dram, in_flash = WeightStore(SPECS), WeightStore(SPECS, flash(tmp_path))
    for store in (dram, in_flash):
        store.train_with(optimizer)
        train(store, range(1, 3))
    path = tmp_path / "saved.mdl"
    saving = Persistence(in_flash, "wgt-0")
    saving.save(path, reserve_tensors(path, saving.layout(list(CLUSTER_STATES))), True)
    saved, after = contents(dram), train(in_flash, range(3, 5))
    saving.finish_saving()
    write_metadata(path, {}, read_parts(path, ["wgt-0"]))
    for memory in (None, flash(tmp_path)):
        resumed = WeightStore(SPECS, memory)
        resumed.train_with(optimizer)
        for state in CLUSTER_STATES:
            Persistence(resumed, "wgt-0").restore(path, state, strict=True)
        assert_same(contents(resumed), saved)
        assert_same(train(resumed, range(3, 5)), after)


def test_journal_in_flash_takes_a_step_back(tmp_path: Path) -> None:
    store = WeightStore(SPECS, flash(tmp_path))
    store.train_with(trained("Adam"))
    before = train(store, range(1, 2))
    journal = Journal(store)
    journal.record(2, store.states)
    train(store, range(2, 3))
    journal.rollback(1)
    assert_same(contents(store), before)


def resident_file_bytes() -> int:
    """Return the bytes of mapped files that this process has in DRAM (proc(5): RssFile)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (found,) = (line.split()[1] for line in lines if line.startswith("RssFile:"))
    return int(found) * 1024


def test_resident_set_is_bounded(tmp_path: Path) -> None:
    """96 MiB of state in 16 MiB: filled, updated, streamed, saved, restored and taken back."""
    store = WeightStore(LARGE, flash(tmp_path, 16 * MIB))
    names = tuple(spec.name for spec in LARGE)
    hyper = {**dict(rule_named("AdamW").Arguments()), "lr": 0.01}
    before, most = resident_file_bytes(), 0

    def note() -> None:
        nonlocal most
        most = max(most, resident_file_bytes() - before)

    store.train_with(OptimizerSpec("AdamW", (ParamGroup(names, hyper),)))
    journal, gradient = Journal(store), torch.ones(MIB // 4)
    for name in names:
        store.fill({name: gradient})
        note()
    for name in names:
        journal.record(1, [name])
        note()
        store.update({name: gradient}, 1)
        note()
        assert store.weights[name][-1] < 1
        note()
    path, saving = tmp_path / "saved.mdl", Persistence(store, "wgt-0")
    saving.save(path, reserve_tensors(path, saving.layout(list(CLUSTER_STATES))), False)
    saving.finish_saving()
    note()
    write_metadata(path, {}, read_parts(path, ["wgt-0"]))
    for state in CLUSTER_STATES:
        saving.restore(path, state, strict=True)
        note()
    journal.rollback(0)
    note()
    assert most <= 16 * MIB + 8 * MIB  # a chunk of the checkpoint and what the kernel reads around


def test_nothing_has_a_name_and_space_is_given_back(tmp_path: Path) -> None:
    """Runs share a folder; the state of another optimizer takes the place of the first."""
    one, other = (WeightStore(SPECS, flash(tmp_path)) for _ in range(2))
    for store in (one, other):
        store.fill({SPECS[0].name: torch.full(SPECS[0].shape, 1.0 + (store is one))})
    assert one.weights["w0"].mean() == 2
    assert other.weights["w0"].mean() == 1
    assert list(tmp_path.iterdir()) == []
    descriptors = len(os.listdir("/proc/self/fd"))
    for rule in ("Adam", "Lion", "Adam", "Lion"):
        one.train_with(trained(rule))
        train(one, range(1, 3))
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2  # a file and its mapping
    del one, other, store


def test_full_disk_is_found_when_memory_is_taken(tmp_path: Path) -> None:
    """Masters that fit, and state that does not: the space is reserved."""
    size = sum(spec.num_bytes for spec in SPECS) + len(SPECS) * 4096
    with full_disk(size):
        store = WeightStore(SPECS, flash(tmp_path))
        with raises(ApplianceResourceExhausted, "flash-path-full"):
            store.train_with(trained("Adam"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_path_must_be_a_folder(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    if kind == "file":
        path.touch()
    with raises(ConfigError, "flash-path-not-usable"):
        WeightStore(SPECS, flash(path))


def test_bound_must_hold_the_largest_parameter() -> None:
    """With its state: Adam has three tensors for each parameter, a journal two of each kind."""
    largest, by_name = SPECS[-1].num_bytes, {spec.name: spec for spec in SPECS}

    def check(factor: float, optimizer: OptimizerSpec | None) -> None:
        spec = FlashSpec(path=Path("/x"), resident_bytes=int(factor * largest))
        check_bound(spec, by_name, optimizer)

    check(2, None)
    check(3, trained("Adam"))
    for factor, optimizer in ((1.9, None), (2.9, trained("Adam")), (1.9, trained("SGD"))):
        with raises(ConfigError, "flash-bound-too-small"):
            check(factor, optimizer)
