"""The contract of sparse streams: non-zeros alone travel, and every bit is that of dense streams."""

from __future__ import annotations

import random
from functools import cache, partial
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings

import memoryx.sparsity.masks as sparse_streams
from appliance.elaboration.elaborate import ClusterSize, elaborate
from memoryx.holder import Holder
from tests.support.roles.local_machine import (
    Regression,
    compile_model,
    installation,
    random_batches,
    sgd,
)
from tests.support.roles.sorting_office import ORDERS, Choose, SortingOffice, oldest_first
from waferstream.core.errors import ApplianceCorruptionError
from waferstream.core.messages.messages import GradientReady, WeightsReady
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import Fill, Install
from waferstream.core.roles.role import Job
from waferstream.core.sparsity.levels import Constant
from waferstream.core.sparsity.spec import UpdateSteps, WeightSparsity
from waferstream.machine.hardware import MachineSpec, SwarmXSpec
from waferstream.numerics.precision import StreamPrecision

WIDTH, ROWS = 40, 10
MACHINE = MachineSpec(swarmx=SwarmXSpec(fan_out=2))
WEIGHTS = tuple(f"layers.{index}.weight" for index in range(3))
source = partial(random_batches, 3, ROWS, WIDTH)
ALGORITHMS: dict[str, dict[str, Any]] = {
    "static": {},
    "set": {"update": UpdateSteps(freq=2), "drop_fraction": Constant(value=0.3)},
    "rigl": {"update": UpdateSteps(freq=2), "drop_fraction": Constant(value=0.3)},
}


class Trained(NamedTuple):
    """What a run of three steps leaves: weights, results, bytes of payloads by bucket."""

    weights: dict[str, torch.Tensor]
    results: Any
    weight_bytes: dict[int, int]
    gradient_bytes: dict[int, int]


def sparsity(algorithm: str, share: float) -> tuple[WeightSparsity, ...]:
    """Return the sparsity of the first two of three weights."""
    level = Constant(value=share)
    made = ALGORITHMS[algorithm]
    return tuple(WeightSparsity(n, algorithm, level=level, **made) for n in WEIGHTS[:2])  # type: ignore[arg-type]


def office(
    algorithm: str, share: float, dtype: str, num_csx: int, choose: Choose = oldest_first
) -> SortingOffice:
    model, batch = Regression(WIDTH, depth=3), source()[0]
    size = ClusterSize(num_csx=num_csx, num_servers=num_csx, lanes=2, activation_bytes=1)
    compiled = compile_model(model, batch, 5, precision=StreamPrecision(dtype, dtype))
    update = sgd(model, max_gradient_norm=0.5, sparsity=sparsity(algorithm, share))
    installed = installation(compiled, source, update, size, MACHINE)
    roles = SortingOffice(elaborate(installed.program.parameters, size, MACHINE, 0), choose)
    for role in roles.roles.values():
        if isinstance(role, Holder):
            role.do(Fill({name: model.state_dict()[name] for name in role.store.masters}))
    roles.do(None, Install(installed))
    return roles


def trained(roles: SortingOffice) -> Trained:
    results = [report.results for report in roles.run(Job(ProgramKind.TRAIN, 1, 3))]
    holders = [role for role in roles.roles.values() if isinstance(role, Holder)]
    weights = {name: m.clone() for one in holders for name, m in one.store.masters.items()}
    sizes: dict[type, dict[int, int]] = {WeightsReady: {}, GradientReady: {}}
    for envelope in roles.delivered:
        message = envelope.message
        if isinstance(message, WeightsReady | GradientReady) and message.step == 1:
            sizes[type(message)][message.bucket] = message.payload.num_bytes
    assert not any(arena.live for arena in roles.arenas.values())
    return Trained(weights, results, sizes[WeightsReady], sizes[GradientReady])


@cache
def dense_streams(algorithm: str, share: float, dtype: str) -> Trained:
    """Return a run on one system in which masked weights travel with their zeros."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_streams, "pays", lambda *_: False)
        return trained(office(algorithm, share, dtype, 1))


@pytest.mark.parametrize(
    ("algorithm", "share", "dtype", "num_csx"),
    [
        ("static", 0.9, "float32", 1),
        ("static", 0.9, "bfloat16", 3),
        ("static", 0.5, "float16", 2),
        ("static", 0.9, "cbfloat16", 2),
        ("static", 1.0, "bfloat16", 1),
        ("static", 0.0, "float32", 1),
        ("set", 0.8, "bfloat16", 3),
        ("rigl", 0.8, "float32", 3),
    ],
)
def test_bits_are_those_of_dense_streams(
    algorithm: str, share: float, dtype: str, num_csx: int
) -> None:
    """On any cluster, in any type, while masks change; weights and results alike."""
    found = trained(office(algorithm, share, dtype, num_csx))
    expected = dense_streams(algorithm, share, dtype)
    assert all(torch.equal(found.weights[n], w) for n, w in expected.weights.items())
    losses = {key: value for each in found.results for key, value in each.items()}
    assert losses == {key: value for each in expected.results for key, value in each.items()}


@settings(max_examples=4, deadline=None)
@given(ORDERS)
def test_bits_are_independent_of_arrival_order(order: random.Random) -> None:
    found = trained(office("rigl", 0.8, "bfloat16", 2, order.choice))
    expected = dense_streams("rigl", 0.8, "bfloat16")
    assert all(torch.equal(found.weights[n], w) for n, w in expected.weights.items())


def test_messages_have_the_bytes_of_non_zeros() -> None:
    """90 % sparse: a layer's 40 x 40 weights and 40 biases take 6560 bytes, else about 900."""
    sparse = trained(office("static", 0.9, "float32", 1))
    dense = dense_streams("static", 0.9, "float32")
    for kind in ("weight_bytes", "gradient_bytes"):
        found, whole = getattr(sparse, kind), getattr(dense, kind)
        assert found.keys() == whole.keys()
        shrunk = [index for index in found if found[index] != whole[index]]
        assert len(found) - len(shrunk) == (2 if kind == "weight_bytes" else 1)
        assert all(found[index] < 0.16 * whole[index] for index in shrunk)
    biases = 40 * 4
    assert set(sparse.gradient_bytes.values()) == {6400 + biases, 640 + biases}


def test_gradient_of_other_weights_is_refused() -> None:
    """A server whose mask is another than the node's takes no sum that would be misplaced."""
    roles = office("static", 0.9, "float32", 1)

    def spoil(routes: list[tuple[str, str]]) -> tuple[str, str]:
        route = next((r for r in routes if r == ("br-0", "wgt-0")), routes[0])
        if route == ("br-0", "wgt-0"):
            server = roles.roles["wgt-0"]
            assert isinstance(server, Holder)
            for mask in server.store.masks.values():
                mask.set(torch.ones(mask.shape, dtype=torch.bool))
        return route

    roles.choose = spoil
    with pytest.raises(ApplianceCorruptionError) as caught:
        roles.run(Job(ProgramKind.TRAIN, 1, 1))
    assert caught.value.code == "gradient-size"
