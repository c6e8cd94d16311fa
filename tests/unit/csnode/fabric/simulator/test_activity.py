"""History of a run: it accounts for every busy cycle and every hop."""

from __future__ import annotations

import numpy as np

from csnode.fabric import kernels
from csnode.fabric.dtypes import Dtype
from csnode.fabric.program import Port
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.activity import Work

X, W = np.ones((4, 6)), np.ones((6, 4))


def test_history_accounts_for_every_busy_cycle_and_hop() -> None:
    outcome = kernels.weight_streaming(Fabric(3, 3, keeps_history=True), X, W, Dtype.FP16).outcome
    assert outcome.history is not None
    busy = outcome.history.busy_cycles(9).reshape(3, 3)
    assert (busy == outcome.busy_cycles).all()
    assert len(outcome.history.hops) == outcome.hops
    assert set(outcome.history.work[:, 3]) == set(Work)


def test_weights_hop_southward_one_row_after_the_other() -> None:
    outcome = kernels.weight_streaming(Fabric(3, 3, keeps_history=True), X, W, Dtype.FP16).outcome
    assert outcome.history is not None
    hops = outcome.history.hops
    weights = hops[hops[:, 2] == 0]  # colour 0
    assert set(weights[:, 1]) == {Port.NORTH}
    assert set(weights[:, 0] // 3) == {1, 2}
    assert (weights[:, 4] - weights[:, 3] == 1).all()  # cycles of a hop


def test_weights_wait_in_routers_while_a_pe_multiplies() -> None:
    """Sixteen tokens take a PE longer than a wavelet takes to come."""
    x, w = np.ones((32, 24)), np.ones((24, 4))
    outcome = kernels.weight_streaming(Fabric(3, 3, keeps_history=True), x, w, Dtype.FP16).outcome
    assert outcome.history is not None
    waits = outcome.history.hops[:, 5] - outcome.history.hops[:, 4]
    assert waits.min() == 0
    assert waits.max() > 4


def test_history_is_kept_on_request_alone() -> None:
    plain = kernels.weight_streaming(Fabric(3, 3), X, W, Dtype.FP16)
    kept = kernels.weight_streaming(Fabric(3, 3, keeps_history=True), X, W, Dtype.FP16)
    assert plain.outcome.history is None
    assert plain.cycles == kept.cycles
    assert (plain.values == kept.values).all()
