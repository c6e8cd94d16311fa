"""Run a traced step once in Python, and compile programs from what was recorded.

The compiler, and what it needs of torch, takes two seconds to import. So this module is imported
where a step is recorded: a program that the compile cache has needs neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache as once
from typing import Any

import torch

from cstorch import flags
from cstorch.amp import stream_precision
from cstorch.listeners.hooks import (
    Names,
    itself,
    note_samples,
    noted_rows,
    traced_tensors,
    while_traced,
)
from cstorch.recording.leaves import Leaves
from cstorch.recording.recorder import recording
from cstorch.session.session import Session, model_of
from cstorch.tracing.call import Call
from cstorch.tracing.clipping import recorded_clipping
from cstorch.tracing.fit import Fit, group_of_samples, recorded_size, target_of
from cstorch.tracing.foreign_steps import refused_foreign_steps
from cstorch.tracing.forward import Forward
from cstorch.tracing.recorded_step import RecordedStep
from cstorch.tracing.start_key import RepeatedLayers
from waferstream.compiler.artifact import ArtifactCache
from waferstream.compiler.capture.capture import masters_of
from waferstream.compiler.capture.host_reads import refuse_host_draws
from waferstream.compiler.compile import CompileRequest, compile_recorded, recorded_digest
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.derivation.depth import CAPTURED_LAYERS
from waferstream.compiler.derivation.recording import Recording, record
from waferstream.compiler.derivation.step_inputs import Place, marked
from waferstream.core.errors import ApplianceCompilationError, ConfigError


class Recordings:
    """The recordings that a step is compiled from, each made when it is first asked for.

    One holds for all sizes in use. Only the step of a single group of samples that share a loss has
    a recording of its own: torch makes views of an extent of one where it copies larger ones, and a
    recording of more groups states that as a condition.
    """

    def __init__(self, session: Session, call: Call, forward: Forward | None = None) -> None:
        self._session = session
        self._call = call
        self._forward = forward
        self._record = once(self._recorded_at)

    def of(self, size: int) -> RecordedStep:
        """Return the recording of the user's function for micro-batches of ``size`` samples."""
        if size == group_of_samples(model_of(self._session)) > 1:
            return self._record(size, False)
        return self._record(*recorded_size(self._session, self._call.tensors))

    def _recorded_at(self, size: int, for_all_sizes: bool) -> RecordedStep:
        return record_step(self._session, self._call, size, for_all_sizes, self._forward)


def record_step(
    session: Session,
    call: Call,
    size: int,
    for_all_sizes: bool = False,
    forward: Forward | None = None,
) -> RecordedStep:
    """Run the user's function on a micro-batch of ``size`` samples.

    It runs once, and again for the whole batch, and for a program with micro-batches of a single
    sample among other sizes; that of a known ``forward`` pass whose layers are equal runs with few
    layers.
    """
    layers = RepeatedLayers.of(model_of(session), forward) if for_all_sizes else None
    rows: dict[str, bool] = {}  # of the tensors that hooks hear
    with noted_rows(rows):
        recorded = _record_layers(session, call, size, for_all_sizes, layers)
    assert recorded.recording is not None, "it has just been made"
    for_all_sizes = for_all_sizes and not recorded.recording.by_torch
    layers = layers if for_all_sizes else None

    @once
    def of_size(size: int) -> Recording:
        _check_repeatable(call)
        with noted_rows(rows), while_traced.without_readers_of_outlines():
            again = _record_layers(session, call, size, for_all_sizes, layers)
        assert again.recording is not None, "it has just been made"
        return again.recording

    return replace(recorded, recording=replace(recorded.recording, of_size=of_size))


def _check_repeatable(call: Call) -> None:
    """Raise ApplianceCompilationError if an argument is used up by the first run of the step."""
    for leaf in call.leaves:
        if isinstance(leaf, Iterator):
            raise ApplianceCompilationError(
                "a step that is recorded twice must not read an iterator",
                code="step-reads-iterator",
                value=type(leaf).__name__,
                rule="Python runs again for the whole batch, to tell sums over it from means",
                remedy="pass a list, or set csx.performance.micro_batch_size to the batch size",
            )


def _record_layers(
    session: Session, call: Call, size: int, for_all_sizes: bool, layers: RepeatedLayers | None
) -> RecordedStep:
    """Return a recorded step, with few of its equal layers if that gives the same."""
    deep = None if layers is None else _record_few_layers(session, call, size, layers)
    return deep or _record(session, call, size, for_all_sizes)


def _record_few_layers(
    session: Session, call: Call, size: int, repeated: RepeatedLayers
) -> RecordedStep | None:
    """Return a step recorded without most of its layers; None if they turn out to differ."""
    with repeated.first(CAPTURED_LAYERS + 1):
        one_more = _record(session, call, size, for_all_sizes=True, names=lambda _: ())
    with repeated.first(CAPTURED_LAYERS):
        few = _record(session, call, size, for_all_sizes=True, names=repeated.names)
    assert few.recording is not None, "it has just been made"
    assert one_more.recording is not None, "it has just been made"
    masters = masters_of(model_of(session))
    whole = few.recording.with_all_layers(one_more.recording, repeated.stack, masters)
    return None if whole is None else replace(few, recording=whole)


def check_counts(session: Session, call: Call, size: int) -> None:
    """Run a step for more samples; raise if what its Python counts or draws follows from them.

    Python runs on one micro-batch for the whole batch, so a count of its samples is another one,
    and numbers drawn for each of them come again in each micro-batch.

    Args:
        backend: The backend of the program.
        call: The call, with the state before it; its Python has run for ``size`` samples.
        size: The samples of a micro-batch.

    Raises:
        ApplianceCompilationError: The state after the two runs is not the same.
    """
    assert call.state is not None, "a step that is watched has a state"
    counts = call.state.counts()
    with while_traced.without_readers_of_outlines():
        record_step(session, call, size + group_of_samples(model_of(session)))
    now = call.state.counts()
    if different := [name for name in counts if counts[name] != now.get(name)]:
        raise ApplianceCompilationError(
            "the traced step draws or counts in Python for each sample",
            code="host-random-in-step",
            where=call.state.line_of(different[0]),
            value=", ".join(different),
            rule="Python runs on one micro-batch, and for all micro-batches of a step",
            remedy="draw with torch (torch.rand, torch.bernoulli), or in the input function, and "
            "count steps; a model of transformers may have an option (apply_spec_augment=False); "
            "or set csx.performance.micro_batch_size to the size of the batch",
        )


def _record(
    session: Session, call: Call, size: int, for_all_sizes: bool, names: Names = itself
) -> RecordedStep:
    """Run the user's function once; hooks hear tensors of modules under ``names``."""
    outputs: Any = None

    def step(batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        nonlocal outputs
        note_samples(batch[0].shape[0])
        outputs = recorder.hand_out(call(batch))
        return recorder.results

    call.rewind()
    model = model_of(session)
    inputs = [(f"input_{i}", t.new_empty(size, *t.shape[1:])) for i, t in enumerate(call.tensors)]
    with (
        refuse_host_draws() if call.state is None else nullcontext(),
        recording() as recorder,
        recorded_clipping(model, recorder),
        refused_foreign_steps(),
        traced_tensors(model, names),
    ):
        recorder.leaves = leaves = Leaves(model, is_whole=names is itself)
        made = record(
            step,
            model,
            inputs,
            stream_precision(model),
            session.model.traced_buffers(),
            for_all_sizes=for_all_sizes,
            taken=lambda: leaves.taken,
        )
    return RecordedStep(session, made, call, outputs, recorder)


def compiled_at(
    recorded: RecordedStep, fit: Fit, cache: ArtifactCache | None = None
) -> tuple[Compiled, bool]:
    """Return the program of a recorded step for a fit, and whether it came from the cache."""
    return compile_recorded(_graph_of(recorded), compile_request(recorded.session, fit), cache)


def compiled_with_inputs(
    before: RecordedStep, now: RecordedStep, fit: Fit, names: Mapping[Place, str]
) -> Compiled | None:
    """Return the program of two recordings that differ in constants, which become its inputs.

    None if the constants decide more than what kernels compute.

    Args:
        before: A recording.
        now: Another one.
        fit: The form of the program.
        names: The names of the inputs by the places of the constants.
    """
    programs = []
    for recorded in (before, now):
        with marked(_graph_of(recorded).captured, names):
            programs.append(compiled_at(recorded, fit)[0])
    return programs[1] if programs[0].is_like(programs[1]) else None


def digest_at(recorded: RecordedStep, fit: Fit) -> str:
    """Return the digest of the program for a fit, without compiling it."""
    return recorded_digest(_graph_of(recorded), compile_request(recorded.session, fit))


def _graph_of(recorded: RecordedStep) -> Recording:
    assert recorded.recording is not None, "the forward pass has run"
    return recorded.recording


def compile_request(session: Session, fit: Fit) -> CompileRequest:
    """Return the settings that decide a compile in addition to the recorded step."""
    cut = fit.cut
    _check_kind(session.settings.cluster_config.cluster.machine.system.name)
    return CompileRequest(
        precision=stream_precision(model_of(session)),
        micro_batch_size=cut.size,
        num_micro_batches=cut.num_micro_batches,
        recomputed_layers=fit.recomputed_layers,
        target=target_of(session),
        num_short=cut.num_short,
    )


def _check_kind(system: str) -> None:
    """Refuse a kind of system that ``csx.debug.fabric_type_blacklist`` excludes."""
    excluded = flags.csx.debug.fabric_type_blacklist
    if system.replace("-", "").lower() in excluded:
        raise ConfigError(
            f"no system is left: the cluster has {system} only",
            code="fabric-type-excluded",
            where="csx.debug.fabric_type_blacklist",
            value=", ".join(excluded),
            remedy="change the flag, or the system in cluster.yaml",
        )
