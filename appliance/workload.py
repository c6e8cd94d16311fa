"""What a cluster is asked to run, before anything says where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from appliance.input_worker import InputFeed
from wsc.compiler.compile import Compiled
from wsc.core.optimizer import OptimizerSpec
from wsc.core.program import Mode


@dataclass(frozen=True)
class Workload:
    """Programs over one set of parameters, their inputs, and how the parameters are trained."""

    compiled: Mapping[Mode, Compiled]
    feeds: Mapping[Mode, InputFeed]
    optimizer: OptimizerSpec | None
    seed: int


@dataclass(frozen=True)
class ClusterSize:
    """How many of each role; the user's ``num_csx`` and relatives."""

    num_csx: int
    num_servers: int = 1
    num_workers: int = 1
    lanes: int = 1  # micro-batches that a node runs side by side on this host
