"""A traced step in the form that fits the wafer: recorded and compiled, or found in the cache."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from csnode.engine.regions import layer_regions, operand_dtype, regions_text
from cstorch import flags, tracing
from cstorch.amp import stream_precision
from cstorch.listeners.hooks import call_with_outlines, noted_outlines
from cstorch.notices import say_batch_norms, say_buffers
from cstorch.recording.loop import Loop
from cstorch.recording.recorder import recording
from cstorch.session.session import Session, model_of
from cstorch.tracing.brief_errors import with_brief_errors
from cstorch.tracing.call import Call
from cstorch.tracing.clipping import recorded_clipping
from cstorch.tracing.fit import Fit, first_cut, fit_to_wafer, target_of
from cstorch.tracing.forward import Forward
from cstorch.tracing.recorded_step import RecordedStep
from cstorch.tracing.start_key import start_key
from waferstream.compiler.artifact import ArtifactCache, schedule_listing
from waferstream.compiler.compiled import Compiled
from waferstream.core.events import Milestone, StepCompiled
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.micro_batches import FILL_WAFER, Cut
from waferstream.core.program.program import Program
from waferstream.host.words import PLAIN_LOG, VENDOR_LOG
from waferstream.machine.program_report import program_report
from waferstream.machine.sram import largest_with_recompute, report_text

if TYPE_CHECKING:
    from cstorch.tracing.recording_step import Recordings
    from waferstream.compiler.derivation.step_inputs import Place

log = logging.getLogger("waferstream")


@dataclass(frozen=True)
class FittedStep:
    """A recorded step, compiled for the wafer."""

    recorded: RecordedStep
    compiled: Compiled
    fit: Fit | None  # None if the forward pass was skipped
    optimizer: OptimizerSpec | None  # None if the step trains nothing
    settings: list[object]  # of the recorder when the update was read
    num_steps: int  # that the schedules of the optimizer cover
    inputs: Mapping[Place, str] = field(default_factory=dict)
    """The names of the constants that are inputs of each step, by their places in the recording."""


@with_brief_errors
def fit_step(
    session: Session,
    call: Call,
    loop: Loop,
    forward: Forward | None,
    recordings: Recordings | None = None,
) -> FittedStep:
    """Record a step and compile it at the micro-batch size that policy and wafer allow.

    ``recordings`` are those of this call, if there are some.

    Raises ConfigError where the batch cannot be cut, ApplianceResourceExhausted where nothing fits.
    """
    cache = None if session.settings.validate_only else session.settings.cache
    job = session.execution.jobs.begin_compile(session.job_client.newest)
    VENDOR_LOG.info(Milestone.COMPILING)
    begin_s = time.perf_counter()
    start = _Start.of(session, call, forward, cache)
    found = None if start is None else start.load(session, call)
    if found is not None:
        (recorded, compiled, was_cached), fit = found, None
    else:
        with noted_outlines() as outlines:
            recorded, compiled, fit, was_cached = _compile_fitting(
                session, call, loop, forward, cache, recordings
            )
        if start is not None:
            start.cache.store_start(start.key, compiled.program.digest, outlines)
    _log_compiled(session, compiled.program, was_cached=was_cached)
    source = " from the cache" if was_cached else ""
    cut = flags.csx.performance.policy.describe(compiled.program.cut)
    PLAIN_LOG.info("Compiled%s in %.1f s. %s", source, time.perf_counter() - begin_s, cut)
    say_batch_norms(session, model_of(session), compiled.program)
    say_buffers(session, model_of(session), compiled.program)
    if cache is not None:
        session.settings.artifacts.note_compiled(compiled.program)
    job.compile_hash, job.is_cached = compiled.program.digest, was_cached
    job.end()
    optimizer = recorded.optimizer_of(compiled, loop.last_step)
    settings = recorded.recorder.settings()
    return FittedStep(recorded, compiled, fit, optimizer, settings, loop.last_step)


def _compile_fitting(
    session: Session,
    call: Call,
    loop: Loop,
    forward: Forward | None,
    cache: ArtifactCache | None,
    recordings: Recordings | None,
) -> tuple[RecordedStep, Compiled, Fit, bool]:
    """Return a recorded step, its program and fit, and whether it came from the cache."""
    steps = tracing.recording_step
    recordings = recordings or steps.Recordings(session, call, forward)

    def compile_alone(size: int) -> tuple[Compiled, OptimizerSpec | None]:
        recorded = recordings.of(size)
        compiled, _ = steps.compiled_at(recorded, Fit(Cut(size, 1)))
        return compiled, recorded.optimizer_of(compiled, 1)

    first = Fit(first_cut(session, call.tensors[0].shape[0], compile_alone, loop.loading))
    recorded = recordings.of(first.cut.size)
    compiled, was_cached = steps.compiled_at(recorded, first, cache)
    fit = fit_to_wafer(session, compiled.program)
    if fit != first:
        recorded = recordings.of(fit.cut.size)
        compiled, was_cached = steps.compiled_at(recorded, fit, cache)
    return recorded, compiled, fit, was_cached


@dataclass(frozen=True)
class _Start:
    """The place in the cache of a step's program that can be found without recording the step."""

    cache: ArtifactCache
    key: str
    forward: Forward

    @classmethod
    def of(
        cls, session: Session, call: Call, forward: Forward | None, cache: ArtifactCache | None
    ) -> _Start | None:
        """Return the place, None if there is no cache or if no key names the step."""
        if cache is None or forward is None:
            return None
        key = start_key(session, model_of(session), call, forward)
        return None if key is None else cls(cache, key, forward)

    def load(self, session: Session, call: Call) -> tuple[RecordedStep, Compiled, bool] | None:
        """Return the step, its program, and whether that was compiled for this very cluster.

        None if there is no program. The forward pass does not run.
        """
        found = self.cache.load_start(self.key, target_of(session))
        if found is None:
            return None
        compiled, outlines, was_cached = found
        model = model_of(session)
        with recording() as recorder, recorded_clipping(model, recorder), self.forward.skipped():
            call_with_outlines(outlines)
            outputs = recorder.hand_out(call(call.tensors))
        return RecordedStep(session, None, call, outputs, recorder), compiled, was_cached


def _log_compiled(session: Session, program: Program, *, was_cached: bool) -> None:
    """Log the outcome of a compile: the cut of the batch, the artifact, and the schedule."""
    policy = flags.csx.performance.policy
    if adjusted := policy.adjustment(program.micro_batch_size):
        log.info("%s", adjusted)
    VENDOR_LOG.info("%s", policy.describe(program.cut))
    if policy.requested == "auto":
        _log_filled(session, program)
    if was_cached:
        VENDOR_LOG.info('Found existing cached compile with hash: "%s"', program.digest)
    elif session.settings.cache is not None and not session.settings.validate_only:
        artifact = session.settings.cache.root / program.digest
        VENDOR_LOG.info("Compile artifacts successfully written to %s", artifact)
    _log_engine(session, program)
    if not session.settings.is_e2e_execution:
        machine = session.settings.cluster_config.cluster.machine
        report = program_report(program, machine, was_cached=was_cached)
        session.program_reports.append(report)
        if session.settings.compile_only:
            log.info("%s", schedule_listing(program, session.settings.size().num_servers))
            log.info("%s", report_text(report.sram))
    if session.settings.validate_only:
        log.info("Every op of the step has a kernel")
    VENDOR_LOG.info(StepCompiled(program.micro_batch_size))


def _log_engine(session: Session, program: Program) -> None:
    """Log where the kernels of each layer run, if the wafer computes some."""
    engine = session.settings.cluster_config.cluster.runtime.engine
    if not engine.is_torch:
        dtype = operand_dtype(stream_precision(session.model.module).compute)
        log.info("%s", regions_text(layer_regions(engine, program, dtype)))


def _log_filled(session: Session, program: Program) -> None:
    """Log what policy ``fill_wafer`` would take, where it is more than ``auto`` does."""
    config = session.settings.cluster_config
    largest = largest_with_recompute(program, config.cluster.machine)
    size = FILL_WAFER.size(program.batch_size, config.num_csx, largest)
    if size > program.micro_batch_size:
        log.info(
            "Policy auto gives the same weights for 1 to 8 systems; fill_wafer would take "
            "micro-batches of %d, for num_csx=%d alone",
            size,
            config.num_csx,
        )
