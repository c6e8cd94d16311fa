"""Run summaries as run.py writes them, made up."""

from dataclasses import replace

from timing.attribution import Attribution
from timing.start_up import StartUp
from waferstream.reports.host import Host
from waferstream.reports.summary import Emulated, Measured, ModelSummary, RunSummary

HOST = Host("Xeon <2>", cores=2, memory_bytes=8 << 30, python="3.11.2", torch="2.13.0")
DIGEST = "ab12" * 16


def summary(num_csx: int, compute_ps: int = 8_000_000, reduce_ps: int = 0) -> RunSummary:
    """Ten steps of batch 16; compute is shared by all systems, the reduce by none."""
    causes = Attribution(compute=10 * compute_ps // num_csx, reduce=10 * reduce_ps)
    return RunSummary(
        status="completed",
        mode="train",
        version="0.1.0",
        num_csx=num_csx,
        system="CS-2",
        model=ModelSummary("gpt2", 3_300_000),
        batch_size=16,
        micro_batch_size=2,
        first_step=1,
        last_step=10,
        train=((1, 5.5), (10, 4.25)),
        weights_sha256=DIGEST,
        measured=Measured(samples_per_s=32.0, seconds=5.0, host=HOST),
        emulated=Emulated(
            samples_per_s=160e12 / causes.total_ps,
            step_ps=causes.total_ps // 10,
            attribution_ps=causes,
            total_ps=causes.total_ps,
        ),
        start_up=StartUp(compile_ps=9, programming_ps=5, initial_weights_ps=3),
    )


def with_digest(run: RunSummary, digest: str) -> RunSummary:
    """The same run, ending with other weights."""
    return replace(run, weights_sha256=digest)
