"""A training on request, on one of several hosts: ``python -m benchmarks.hosts.driver JSON``.

The order comes as JSON, see ``Order``. Each line of standard input is a number of steps; when they
are done, a line of standard output has their seconds. The end of the input ends the training.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from time import perf_counter
from unittest.mock import patch

import cstorch
from appliance.ray import starter
from appliance.spec import RuntimeSpec
from benchmarks.hosts.star import star_on
from benchmarks.streaming.arms import open_cluster
from benchmarks.streaming.workload import Workload
from waferstream.core.config import Config

DONE = "done"
"""First word of the lines that answer; others are logs."""


class Order(Config):
    """What to train, and where."""

    runtime: RuntimeSpec
    num_csx: int
    hidden: int
    layers: int
    vocab: int
    sequence_length: int
    num_micro_batches: int
    """Micro-batches of one sample in a step."""

    is_star: bool = False
    """Whether roles are placed and connected as before there was a switch for each host."""

    @property
    def workload(self) -> Workload:
        """The training; all cores of a host may compute."""
        return Workload(
            hidden=self.hidden,
            layers=self.layers,
            vocab=self.vocab,
            sequence_length=self.sequence_length,
            batch_size=self.num_micro_batches,
            precision="fp32",
            cores=1,
        )


def main() -> None:
    """Train as many steps as each line of the input says."""
    order = Order.model_validate_json(sys.argv[1])
    cstorch.backends.csx.performance.micro_batch_size = 1
    with ExitStack() as stack:
        if order.is_star:
            stack.enter_context(patch.object(starter, "placer_on", star_on))
        run = stack.enter_context(
            open_cluster(order.workload, order.num_csx, runtime=order.runtime)
        )
        for line in sys.stdin:
            begin = perf_counter()
            run(int(line))
            print(DONE, perf_counter() - begin, flush=True)


if __name__ == "__main__":
    main()
