"""Streaming the weights to a GPU: against keeping them there, and where they do not fit.

    python -m benchmarks.streaming.gpu --json benchmarks/results/streaming_gpu.json     # 5 minutes

Needs a GPU and a torch with CUDA. Three arms train the same GPT in turn: ``memory`` keeps model and
optimizer on the GPU, with the attention that torch chooses; ``same`` does so with the kernels that
streaming uses (attention of products and softmax, deterministic algorithms); ``csx1`` is one
CS system on the GPU, with masters and optimizer on the processor. Then both ways train a deeper
model while torch may take ``--gpu_mib`` of the GPU, less than the weights alone.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from appliance.placement.placer import check_gpus
from appliance.spec import RuntimeSpec
from benchmarks.streaming.arm import Arm, Opener
from benchmarks.streaming.arms import open_cluster
from benchmarks.streaming.comparison import Comparison, run_trials
from benchmarks.streaming.workload import ADAMW, Workload
from csnode.devices.cuda import reproducible
from waferstream.core.errors import WaferStreamError
from waferstream.core.units import MIB
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

STREAMED, MEMORY, SAME = "csx1", "memory", "same"
GOAL = 0.97
"""Speed of streaming over the step in memory, of the same kernels."""

_HALF_BYTES = 2
_OUT_OF_MEMORY = "OutOfMemoryError"


@contextmanager
def open_on_device(
    workload: Workload, device: str, *, same_kernels: bool, limit_bytes: int | None = None
) -> Iterator[Callable[[int], None]]:
    """Keep model and optimizer on a device; it is idle at the end of each run."""
    _limit(limit_bytes)
    model = workload.model().to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW, fused=True)
    batches, size = iter(workload.source()), workload.micro_batch_size
    share = size / workload.batch_size

    def kernels() -> AbstractContextManager[Any]:
        contexts = ExitStack()
        if same_kernels:
            contexts.enter_context(reproducible())
            contexts.enter_context(sdpa_kernel(SDPBackend.MATH))
        return contexts

    def run(steps: int) -> None:
        for _ in range(steps):
            batch = {name: rows.to(device) for name, rows in next(batches).items()}
            for start in range(0, workload.batch_size, size):
                part = {name: rows[start : start + size] for name, rows in batch.items()}
                (model(**part) * share).backward()
            optimizer.step()
            optimizer.zero_grad()
        if device != "cpu":
            torch.cuda.synchronize()

    with kernels():
        yield run


@contextmanager
def open_streamed(
    workload: Workload, runtime: RuntimeSpec, limit_bytes: int | None = None
) -> Iterator[Callable[[int], None]]:
    """Stream the training through one system; the limit holds for a cluster in this process."""
    _limit(limit_bytes)
    with open_cluster(workload, 1, runtime=runtime) as run:
        yield run


def beyond(gpu_bytes: int) -> Workload:
    """Return a workload whose weights alone take more than so many bytes, and little else."""
    base = Workload(1024, 1, 8192, 128, 2, "bf16", cores=1, micro_batch=1)
    fixed = base.num_parameters()
    per_layer = replace(base, layers=2).num_parameters() - fixed
    layers = 2 + max(0, gpu_bytes // _HALF_BYTES - fixed) // per_layer
    return replace(base, layers=layers)


def _limit(limit_bytes: int | None) -> None:
    """Let torch take at most so many bytes of the GPU in this process."""
    if limit_bytes is not None:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure both parts.

    Raises:
        ClusterJobInitError: There is no GPU.
        WaferStreamError: An arm failed.
    """
    check_gpus("cuda", 1)
    cores = len(os.sched_getaffinity(0))
    shape = (options.hidden, options.layers, options.vocab, options.sequence_length)
    workload = Workload(
        *shape, options.batch_size, "bf16", cores, micro_batch=options.micro_batch_size
    )
    result = {
        **new_result("streaming to a GPU against keeping the model there"),
        "gpu": torch.cuda.get_device_name(0),
        "parameters": workload.num_parameters(),
    }
    comparison = _compared(workload, options.repeats, options.steps)
    print(f"\n{comparison.table()}\n", flush=True)
    ratios = {name: comparison.ratio(STREAMED, name).median for name in (MEMORY, SAME)}
    print(f"streamed over memory: {ratios} (goal: {GOAL} of {SAME})", flush=True)
    return {
        **result,
        "comparison": comparison.as_json(),
        "streamed_over": ratios,
        "beyond": _beyond(options.gpu_mib * MIB),
    }


def _compared(workload: Workload, repeats: int, steps: int) -> Comparison:
    openers: Mapping[str, Opener] = {
        MEMORY: partial(open_on_device, workload, "cuda", same_kernels=False),
        SAME: partial(open_on_device, workload, "cuda", same_kernels=True),
        STREAMED: partial(open_streamed, workload, RuntimeSpec(device="cuda")),
    }
    with ExitStack() as alive:
        arms = {}
        for name, opener in openers.items():
            print(f"setting up {name}", flush=True)
            arms[name] = alive.enter_context(closing(Arm(name, [opener])))
        return Comparison(workload, tuple(run_trials(arms, repeats, steps)))


def _beyond(gpu_bytes: int) -> dict[str, Any]:
    """Return the results of training a model beyond the GPU's memory, both ways."""
    workload = beyond(gpu_bytes)
    runtime = RuntimeSpec(kind="local", device="cuda", activation_memory=1)
    seconds = _seconds(partial(open_streamed, workload, runtime, gpu_bytes))
    try:
        _seconds(
            partial(open_on_device, workload, "cuda", same_kernels=True, limit_bytes=gpu_bytes)
        )
        fits = True
    except WaferStreamError as error:
        if _OUT_OF_MEMORY not in str(error.value):
            raise
        fits = False
    found = {
        "parameters": workload.num_parameters(),
        "gpu_bytes": gpu_bytes,
        "streamed_s_per_step": seconds,
        "fits_in_memory": fits,
    }
    print(f"beyond the memory of the GPU: {found}", flush=True)
    return found


def _seconds(opener: Opener) -> float:
    with closing(Arm("beyond", [opener])) as arm:
        return arm.run(2) / 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        write_json(options.json, measure(options))
    except WaferStreamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.streaming.gpu",
        description=(__doc__ or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--json", type=new_file, required=True, help="where results go")
    parser.add_argument("--hidden", type=positive, default=1024)
    parser.add_argument("--layers", type=positive, default=12)
    parser.add_argument("--vocab", type=positive, default=16384)
    parser.add_argument("--sequence_length", type=positive, default=512)
    parser.add_argument("--batch_size", type=positive, default=64)
    parser.add_argument("--micro_batch_size", type=positive, default=16)
    parser.add_argument("--repeats", type=positive, default=5, help="trials of each arm")
    parser.add_argument("--steps", type=positive, default=3, help="training steps in a trial")
    parser.add_argument("--gpu_mib", type=positive, default=512, help="limit of the second part")
    return parser


if __name__ == "__main__":
    sys.exit(main())
