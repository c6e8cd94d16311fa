"""A tiny cluster for contracts of roles: real roles, and arenas that detect wrong reads and frees.

Three systems, two weight servers with replicas, two input workers, two activation servers; the
training program clips, and has too many activations for its nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial

import torch

from appliance.elaboration.elaborate import ClusterSize, elaborate
from memoryx.holder import Holder
from tests.support.roles.local_machine import (
    BF16,
    FP32,
    Regression,
    compile_model,
    installation,
    random_batches,
    sgd,
)
from tests.support.roles.sorting_office import Choose, SortingOffice, oldest_first
from waferstream.core.roles.commands import Install
from waferstream.core.roles.installation import Installation
from waferstream.machine.hardware import MachineSpec, SwarmXSpec
from waferstream.numerics.precision import StreamPrecision

MACHINE = MachineSpec(swarmx=SwarmXSpec(fan_out=2))
SIZE = ClusterSize(
    num_csx=3,
    num_servers=2,
    num_workers=2,
    num_activation_servers=2,
    lanes=2,
    has_replicas=True,
    activation_bytes=1,
)
ROOM_BYTES = {FP32: 4_100, BF16: 3_700}
"""Too few for two micro-batches in training on each system, by precision."""
ROWS, NUM_MICRO_BATCHES = 22, 11
source = partial(random_batches, 4, ROWS)


@cache
def programs(
    precision: StreamPrecision = FP32,
) -> tuple[Regression, Installation, Installation]:
    """Return a model with its training program, which clips, and its evaluation program."""
    model, batch = Regression(depth=4), source()[0]
    train, evaluate = (
        compile_model(model, batch, NUM_MICRO_BATCHES, trains=trains, precision=precision)
        for trains in (True, False)
    )
    size = replace(SIZE, activation_bytes=ROOM_BYTES[precision])
    update = sgd(model, max_gradient_norm=0.5)
    return (
        model,
        installation(train, source, update, size, MACHINE),
        installation(evaluate, source, None, SIZE, MACHINE),
    )


def office(
    choose: Choose = oldest_first,
    kind: type[SortingOffice] = SortingOffice,
    precision: StreamPrecision = FP32,
) -> SortingOffice:
    """Return a cluster with both programs installed and the weights loaded."""
    model, train, evaluate = programs(precision)
    roles = kind(elaborate(train.program.parameters, SIZE, MACHINE, seed=0), choose)
    roles.do(None, Install(train))
    roles.do(None, Install(evaluate))
    for name in ("wgt-0", "wgt-1", "rpl-0", "rpl-1"):
        store = holder(roles, name).store
        store.fill({name: model.state_dict()[name] for name in store.masters})
    return roles


def holder(roles: SortingOffice, name: str) -> Holder:
    """Return a weight server of the cluster, or a replica."""
    role = roles.roles[name]
    assert isinstance(role, Holder)
    return role


def weights(roles: SortingOffice) -> dict[str, torch.Tensor]:
    """Return a copy of every master."""
    servers = (holder(roles, name) for name in ("wgt-0", "wgt-1"))
    return {name: m.clone() for server in servers for name, m in server.store.masters.items()}


def assert_same(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
