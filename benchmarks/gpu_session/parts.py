"""The parts of a session, each of which runs in a process of its own.

    python -m benchmarks.gpu_session.parts NAME SETTINGS FILE

A part notes its figures as it goes; each note rewrites the file, so that what a part has measured
before it is cut is there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch

from appliance.placement.placer import check_gpus
from benchmarks.gpu_session.loops import accept_torch, open_in_memory, open_streamed
from benchmarks.gpu_session.measures import (
    copy_bytes_per_s,
    model_flops,
    product_flops_per_s,
    published_peak,
    shares_of,
    traced,
)
from benchmarks.gpu_session.settings import STATE_BYTES, Note, Settings
from benchmarks.streaming.arm import Arm, Opener
from benchmarks.streaming.arms import open_backend
from benchmarks.streaming.cluster_training import training_on
from benchmarks.streaming.comparison import Spread, speed_ratio
from benchmarks.streaming.workload import Workload
from waferstream.core.errors import WaferStreamError
from waferstream.host.files import write_json

STREAMED, MEMORY, SAME = "csx1", "memory", "same"
"""Arms: streamed; in memory as torch is fastest; in memory with the kernels of a cluster."""

_TESTS = (
    *("tests/parity/test_device.py", "tests/parity/test_device_order.py"),
    *("tests/unit/csnode/devices", "tests/unit/waferstream/numerics/test_keyed_random.py"),
)
_ROOT = Path(__file__).parents[2]
_OUT_OF_MEMORY = "OutOfMemoryError"


def measure_device(settings: Settings, note: Note) -> None:
    """Measure what the device can do at most, so that all other figures have a scale."""
    is_cuda = settings.device == "cuda"
    note(torch=torch.__version__, runtime=settings.runtime().kind)
    if is_cuda:
        properties = torch.cuda.get_device_properties(0)
        note(
            name=properties.name,
            memory_bytes=properties.total_memory,
            capability=[properties.major, properties.minor],
            cuda=torch.version.cuda,
            flash=torch.backends.cuda.is_flash_attention_available(),
        )
    size, mib = (8192, 1024) if is_cuda and not settings.small else (256, 4)
    note(product_flops_per_s=product_flops_per_s(settings.device, size))
    note(copy_bytes_per_s=copy_bytes_per_s(settings.device, mib))


def run_tests(_: Settings, note: Note) -> None:
    """Run the parity tests of devices, those of every night, too."""
    pytest: Any = import_module("pytest")
    outcomes: dict[str, str] = {}

    class Noting:
        """Notes the outcome of each test when it ends."""

        def pytest_runtest_logreport(self, report: Any) -> None:
            """Take the report of one phase of a test."""
            if report.when == "call" or report.outcome != "passed":
                outcomes[report.nodeid] = report.outcome
                note(outcomes=outcomes)

    words = ["-q", "-m", "", "-p", "no:cacheprovider", *(str(_ROOT / test) for test in _TESTS)]
    status = pytest.main(words, plugins=[Noting()])
    note(exit_status=int(status))
    if status != 0:
        raise SystemExit(f"pytest ended with {int(status)}")


def compare_systems(settings: Settings, note: Note) -> None:
    """Train twice on one system and once on two that share the device: the bits are equal."""
    workload = replace(settings.gpt_124m(), batch_size=8, micro_batch=2)
    found: dict[str, str] = {}
    for name, num_csx in (("one", 1), ("one_again", 1), ("two", 2)):
        with open_backend(workload, num_csx, settings.runtime()) as backend:
            training_on(backend, workload)(2)
            found[name] = backend.weights_digest()
        note(weights=found)
    note(equal_bits=len(set(found.values())) == 1)


def compare_124m(settings: Settings, note: Note) -> None:
    """Compare a step of GPT-2 small with one in memory, compiled and with the same kernels."""
    _compare(settings, settings.gpt_124m(), (MEMORY, STREAMED, SAME), note)


def compare_1_3b(settings: Settings, note: Note) -> None:
    """Compare a step of 1.3 billion parameters with one in memory."""
    _compare(settings, settings.gpt_1_3b(), (STREAMED, MEMORY), note)


def trace_copies(settings: Settings, note: Note) -> None:
    """Trace two steps: the share of the time in which copies are not hidden behind kernels."""
    workload = settings.gpt_124m()
    with open_streamed(workload, settings.runtime(kind="local")) as run:
        run(1)
        note(shares=asdict(shares_of(traced(run, 2, settings.device))))


def exceed_memory(settings: Settings, note: Note) -> None:
    """Train a model whose weights and optimizer state exceed the memory of the device."""
    workload, limit = settings.gpt_beyond()
    state = STATE_BYTES * workload.num_parameters()
    note(parameters=workload.num_parameters(), state_bytes=state, limit_bytes=limit)
    runtime = settings.runtime()
    if limit is not None:  # which holds in one process; the rest is for two segments and the head
        runtime = settings.runtime(kind="local", activation_memory=3 * limit // 4)
    seconds = _seconds(partial(open_streamed, workload, runtime, limit), 1, 1)
    note(**_step(workload, seconds, settings))
    if settings.device == "cpu":
        return
    in_memory = partial(open_in_memory, workload, settings.device, is_compiled=False)
    try:
        _seconds(partial(in_memory, is_mixed=True, limit_bytes=limit), 1, 1)
        note(fits_in_memory=True)
    except WaferStreamError as error:
        if _OUT_OF_MEMORY not in str(error.value):
            raise
        note(fits_in_memory=False)


class Part(NamedTuple):
    """What a part does, and its share of the time: seconds of ten minutes."""

    act: Callable[[Settings, Note], None]
    seconds: int


PARTS: Mapping[str, Part] = {
    "device": Part(measure_device, 30),
    "tests": Part(run_tests, 75),
    "systems": Part(compare_systems, 60),
    "gpt_124m": Part(compare_124m, 110),
    "beyond": Part(exceed_memory, 130),
    "copies": Part(trace_copies, 45),
    "gpt_1_3b": Part(compare_1_3b, 150),
}
"""Parts by name, in order of value."""


def _compare(settings: Settings, workload: Workload, arms: Sequence[str], note: Note) -> None:
    """Measure arms one after the other, each alone on the device."""
    openers: Mapping[str, Opener] = {
        MEMORY: partial(open_in_memory, workload, settings.device, is_compiled=True),
        SAME: partial(open_in_memory, workload, settings.device, is_compiled=False),
        STREAMED: partial(open_streamed, workload, settings.runtime()),
    }
    seconds: dict[str, list[float]] = {}
    note(parameters=workload.num_parameters(), workload=asdict(workload))
    for name in arms:
        seconds[name] = _seconds(openers[name], settings.repeats, 2)
        note(**{name: _step(workload, seconds[name], settings)})
        for other in seconds.keys() - {STREAMED}:
            if STREAMED in seconds:
                over = speed_ratio(seconds[STREAMED], seconds[other])
                note(**{f"{STREAMED}_over_{other}": asdict(over)})


def _seconds(opener: Opener, repeats: int, steps: int) -> list[float]:
    """Return the seconds of a step in each trial of an arm."""
    with closing(Arm("alone", [opener])) as arm:
        return [arm.run(steps) / steps for _ in range(repeats)]


def _step(workload: Workload, seconds: Sequence[float], settings: Settings) -> dict[str, Any]:
    spread = Spread.of(seconds)
    rate = model_flops(workload) / spread.median
    peak = published_peak(torch.cuda.get_device_name(0)) if settings.device == "cuda" else None
    return {
        "seconds_per_step": asdict(spread),
        "tokens_per_s": workload.tokens / spread.median,
        "model_flops_per_s": rate,
        "mfu": None if peak is None else rate / peak,
    }


def main(arguments: Sequence[str]) -> int:
    """Run one part; return the exit status."""
    name, settings_text, path = arguments
    settings = Settings(**json.loads(settings_text))
    figures: dict[str, Any] = {}

    def note(**found: Any) -> None:
        figures.update(found)
        write_json(Path(path), figures)
        print(f"{name}: {found}", flush=True)

    accept_torch()
    check_gpus(settings.device, 1)
    PARTS[name].act(settings, note)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
