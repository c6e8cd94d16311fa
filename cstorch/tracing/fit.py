"""Choose micro-batch size and recomputed layers so that a step fits the wafer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import nn

from cstorch import flags
from cstorch.session.session import Session, model_of
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.derivation.scale import capture_both, captured_sizes
from waferstream.core.errors import ConfigError
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.micro_batches import (
    FLAG,
    Cut,
    SizeRange,
    check_groups,
    explored_sizes,
    share_of,
)
from waferstream.core.program.program import Loading, Program
from waferstream.machine.sram import data_bytes, largest_with_recompute, plan_sram
from waferstream.simulator.exploration import exploration_table, explore, fastest
from waferstream.simulator.simulator import Simulator

log = logging.getLogger("waferstream")

CompileAt = Callable[[int], tuple[Compiled, OptimizerSpec | None]]
"""Compiles a step at a micro-batch size; returns its program and the update that follows it."""

EXPECTED_BYTES_PER_ACTIVATION = 128
"""An amount that activations of a layer with gradients, scores and masks rarely exceed."""


@dataclass(frozen=True)
class Fit:
    """The form in which a step fits the wafer: its micro-batches and recomputed layers."""

    cut: Cut
    recomputed_layers: tuple[str, ...] = ()


def recorded_size(session: Session, tensors: Sequence[torch.Tensor]) -> tuple[int, bool]:
    """Return the micro-batch size at which a step is recorded, and whether others may follow.

    Others follow where sizes are explored, where the batch does not divide, and where a smaller
    size is taken because the first one does not fit. Nothing follows from a single group of
    samples. Raises ConfigError where the batch cannot be cut as the policy asks.
    """
    policy, num_csx = flags.csx.performance.policy, session.settings.cluster_config.cut_csx
    batch_size, group = tensors[0].shape[0], group_of_samples(model_of(session))
    if policy.range is not None:
        explored_sizes(batch_size, policy.range, num_csx, group)
        return captured_sizes(group)[0], True
    size = policy.size(batch_size, num_csx)
    if size <= group:
        return size, False
    is_uneven = Cut.of(batch_size, size, num_csx).num_short > 0
    return size, is_uneven or (policy.depends_on_wafer and not _fits_surely(session, tensors, size))


def target_of(session: Session) -> str:
    """Return the description of the cluster that a program is for."""
    config = session.settings.cluster_config
    return f"{config.num_csx} x {config.cluster.machine.model_dump_json()}"


def group_of_samples(model: nn.Module) -> int:
    """Return how many consecutive samples share a loss, which a model states under this name."""
    return getattr(model, "group_of_samples", 1)


def _fits_surely(session: Session, tensors: Sequence[torch.Tensor], size: int) -> bool:
    """Return whether a micro-batch is so small that any model of these parameters has room.

    Every element of a sample is taken to pass through every parameter, and to attend to all others.
    """
    elements = max(prod(tensor.shape[1:]) for tensor in tensors)
    shapes = [tuple(parameter.shape) for parameter in model_of(session).parameters()]
    activations = elements * sum(sum(shape) for shape in shapes) + elements**2 * len(shapes)
    wafer = session.settings.cluster_config.cluster.machine.system
    return size * activations * EXPECTED_BYTES_PER_ACTIVATION <= data_bytes(wafer)


def first_cut(session: Session, batch_size: int, compile_at: CompileAt, loading: Loading) -> Cut:
    """Return the micro-batches for which a step is compiled first.

    Raises ConfigError where the batch cannot be cut as the policy asks.
    """
    policy, num_csx = flags.csx.performance.policy, session.settings.cluster_config.cut_csx
    if policy.range is None:
        size = policy.size(batch_size, num_csx)
    else:
        size = _fastest_size(session, batch_size, policy.range, compile_at, loading)
    return _of_whole_groups(session, Cut.of(batch_size, size, num_csx))


def _of_whole_groups(session: Session, cut: Cut) -> Cut:
    """Return a cut; ConfigError if it cuts a group of samples that share a loss."""
    check_groups(cut, group_of_samples(model_of(session)))
    return cut


def fit_to_wafer(session: Session, program: Program) -> Fit:
    """Return the fit of a step that was compiled at its first size.

    Layers are recomputed where activations do not fit; where that is not enough, ``auto`` and
    ``fill_wafer`` take a smaller size, and others run layers in blocks. Footprints are affine in
    the samples of a micro-batch, so the fit at any size follows from one program. Raises
    ApplianceResourceExhausted if none fits.
    """
    policy, config = flags.csx.performance.policy, session.settings.cluster_config
    machine, cut = config.cluster.machine, program.cut
    largest = largest_with_recompute(program, machine)
    if policy.depends_on_wafer and 0 < largest < cut.size:
        log.info("Micro-batches of %d samples do not fit a %s", cut.size, machine.system.name)
        size = policy.size(cut.batch_size, config.cut_csx, largest)
        cut = _of_whole_groups(session, Cut.of(cut.batch_size, size, config.cut_csx))
    sram_plan = plan_sram(replace(program, micro_batch_size=cut.size), machine)
    layers = tuple(program.segments[index].layer for index in sram_plan.recomputed)
    if layers:
        log.info("To fit a %s, %d layers are recomputed", machine.system.name, len(layers))
    if sram_plan.runs_in_blocks:
        log.info(
            "To fit a %s, layers run on a part of a micro-batch at a time", sram_plan.wafer.name
        )
    return Fit(cut, layers)


def _fastest_size(
    session: Session, batch_size: int, allowed: SizeRange, compile_at: CompileAt, loading: Loading
) -> int:
    """Return the size with the shortest emulated step, of those that fit the wafer."""
    if session.settings.is_e2e_execution:
        raise ConfigError(
            "explore compares micro-batch sizes and runs nothing",
            code="explore-runs-nothing",
            where=FLAG,
            rule="explore goes with compile_only",
            remedy="compile with --compile_only, then set the size that it names",
        )
    config, group = session.settings.cluster_config, group_of_samples(model_of(session))
    sizes = explored_sizes(batch_size, allowed, config.num_csx, group)
    optimizers: list[OptimizerSpec | None] = []

    def capture(size: int) -> Compiled:
        compiled, optimizer = compile_at(size)
        optimizers.append(optimizer)
        return compiled

    program = capture_both(capture, group)
    simulator = Simulator.of(
        program,
        optimizers[0],
        config.cluster.machine,
        session.settings.size().num_servers,
        loading,
        capture(group).program if sizes[0] == group > 1 else None,
    )
    trials = explore(simulator, batch_size, sizes, config.num_csx)
    best = fastest(trials)
    log.info("Explored micro-batch sizes:\n%s", exploration_table(trials))
    share = share_of(batch_size, config.num_csx)
    if best.micro_batch_size == share:
        log.info(
            "No benefit from gradient accumulation expected. Compile will proceed at original "
            "per-box batch size %d",
            share,
        )
    else:
        log.info("Gradient accumulation picked micro batch size %d", best.micro_batch_size)
    log.info("Fastest: csx.performance.micro_batch_size: %d", best.micro_batch_size)
    return best.micro_batch_size
