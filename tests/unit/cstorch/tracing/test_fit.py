"""The micro-batch size that a step is compiled for: stated, fitted to the wafer, or explored."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

import cstorch
from cstorch import backends
from tests.support.errors import raises
from tests.support.nightly import nightly
from tests.support.programs.cstorch_program import (
    executor,
    loader,
    losses,
    running_backend,
    training_step,
)
from tests.support.roles.local_machine import Regression, compile_model, random_batches
from tests.support.runs.tiny_training import GPT, LOADER, MICRO_BATCH_SIZE, Shape, cluster_config
from tests.support.timing.machines import alone
from waferstream.core.errors import (
    ApplianceCompilationError,
    ApplianceResourceExhausted,
    ConfigError,
)
from waferstream.core.events import StepCompiled
from waferstream.core.program.micro_batches import Explore, SizeRange
from waferstream.machine.hardware import CS2
from waferstream.machine.sram import SramPlan, code_bytes, recomputable, recompute
from waferstream.workload.data import build_source
from waferstream.workload.models import build_model

Sizes = Callable[[], list[int]]
"""Returns the micro-batch sizes that were compiled, in order."""
ROWS = 32
PROGRAM = compile_model(Regression(), random_batches(1, 2)[0], 1).program


def train(
    requested: Any, rows_that_fit: int = ROWS, num_csx: int = 1, rows: int = ROWS, **options: Any
) -> tuple[list[float], str | None]:
    """Train on wafers with room for so many rows; return losses and the weights' digest."""
    one_too_many = SramPlan.of(replace(PROGRAM, micro_batch_size=rows_that_fit + 1), alone(CS2))
    capacity = one_too_many.peak_bytes - 1
    config = cluster_config(Shape(num_csx), system={"sram_bytes": code_bytes(CS2) + capacity})
    with running_backend(cluster_config=config, **options) as backend:
        backends.csx.performance.micro_batch_size = requested
        data = loader(lambda: random_batches(2, rows))
        seen = losses(training_step(backend), executor(2, data))
        return seen, backend.weights_digest() if backend.is_e2e_execution else None


@pytest.fixture
def sizes(caplog: pytest.LogCaptureFixture) -> Sizes:
    """Return a function that reads the micro-batch sizes from the events of compiles."""
    caplog.set_level(logging.INFO, "waferstream")

    def found() -> list[int]:
        events = [record.msg for record in caplog.records]
        return [event.micro_batch_size for event in events if isinstance(event, StepCompiled)]

    return found


@pytest.mark.parametrize(
    ("requested", "size"), [("auto", 4), (8, 8), (None, 32), ("fill_wafer", 32)]
)
def test_size_that_fits_is_compiled_as_requested(sizes: Sizes, requested: Any, size: int) -> None:
    """The step is compiled once; ``auto`` leaves eight micro-batches."""
    train(requested, compile_only=True)
    assert sizes() == [size]


@pytest.mark.parametrize(("fits", "size"), [(3, 2), (1, 1), *nightly((4, 4), (2, 2))])
def test_auto_takes_the_largest_size_that_fits(sizes: Sizes, fits: int, size: int) -> None:
    """The weights are those that this size gives when it is stated."""
    found = train("auto", fits)
    assert sizes()[-1] == size
    assert found == train(size)


@pytest.mark.parametrize(("fits", "num_csx", "size"), [(20, 1, 16), (32, 3, 11), (3, 2, 3)])
def test_fill_wafer_takes_the_fewest_rounds(
    sizes: Sizes, fits: int, num_csx: int, size: int
) -> None:
    """A wafer with room for 20 rows takes twice 16; three systems share 32 rows in one round."""
    train("fill_wafer", fits, num_csx, compile_only=True)
    assert sizes()[-1] == size


@pytest.mark.parametrize("requested", ["auto", pytest.param(2, marks=pytest.mark.nightly)])
def test_layers_are_recomputed_where_they_do_not_fit(
    requested: Any, sizes: Sizes, caplog: pytest.LogCaptureFixture
) -> None:
    """The weights are those that a larger wafer gives at the same size."""
    source = build_source(LOADER | {"batch_size": 16}, "test")
    batches = [source.batch(index) for index in range(2)]
    half = {name: tensor[:MICRO_BATCH_SIZE] for name, tensor in batches[0].items()}
    program = compile_model(build_model(GPT, 0), half, 1).program
    foreseen = recompute(program, recomputable(program))

    def train_gpt(capacity: int) -> str:
        config = cluster_config(Shape(2), system={"sram_bytes": code_bytes(CS2) + capacity})
        with running_backend(cluster_config=config) as backend:
            backends.csx.performance.micro_batch_size = requested
            cstorch.compile(build_model(GPT, 0), backend)
            losses(training_step(backend), executor(2, loader(lambda: batches)))
            return backend.weights_digest()

    whole, least = (SramPlan.of(each, alone(CS2)).peak_bytes for each in (program, foreseen))
    assert train_gpt(least) == train_gpt(whole)
    assert set(sizes()) == {MICRO_BATCH_SIZE}
    assert "layers are recomputed" in caplog.text


@pytest.mark.parametrize(
    ("requested", "rows_that_fit"), [("auto", 2), ("fill_wafer", 20), ("explore", 20), (5, 20)]
)
def test_compile_at_other_sizes_runs_python_once(requested: Any, rows_that_fit: int) -> None:
    """Side effects happen once, and a generator among the arguments is read once."""
    one_too_many = SramPlan.of(replace(PROGRAM, micro_batch_size=rows_that_fit + 1), alone(CS2))
    wafer = {"sram_bytes": code_bytes(CS2) + one_too_many.peak_bytes - 1}
    config, calls = cluster_config(Shape(1), system=wafer), []
    with running_backend(cluster_config=config, compile_only=True) as backend:
        backends.csx.performance.micro_batch_size = requested
        model = cstorch.compile(Regression(), backend)

        @cstorch.trace
        def step(batch: dict[str, torch.Tensor], factors: Iterator[float]) -> torch.Tensor:
            calls.append(list(factors))
            loss: torch.Tensor = model(**batch)
            return loss * sum(calls[-1])

        for batch in executor(1, loader(lambda: random_batches(1, ROWS))):
            step(batch, (factor for factor in (1.0, 2.0)))
    assert calls == [[1.0, 2.0]]


def compile_noting(rows: int, size: Any, factors: Any) -> list[tuple[int, list[float]]]:
    """Compile a step that reads its argument ``factors``; return what each run of Python saw."""
    seen = Mock()
    with running_backend(compile_only=True) as backend:
        backends.csx.performance.micro_batch_size = size
        model = cstorch.compile(Regression(), backend)

        @cstorch.trace
        def step(batch: dict[str, torch.Tensor], factors: Any) -> torch.Tensor:
            given = list(factors)
            seen(int(batch["x"].shape[0] == 1), given)
            loss: torch.Tensor = model(**batch)
            return loss * sum(given)

        for batch in executor(1, loader(lambda: random_batches(1, rows))):
            step(batch, factors)
    return [call.args for call in seen.call_args_list]


@pytest.mark.parametrize(("rows", "size", "runs"), [(5, 2, [0, 1]), (7, 3, [0]), (3, 1, [1, 0])])
def test_python_runs_again_for_one_sample(rows: int, size: int, runs: list[int]) -> None:
    """Beside larger micro-batches, or the batch: torch treats an extent of one in its own way."""
    assert compile_noting(rows, size, (1.0, 2.0)) == [(run, [1.0, 2.0]) for run in runs]


def test_step_that_runs_again_must_not_use_up_an_iterator() -> None:
    """Python would find no factor in its second run."""
    for rows in (4, 5):
        with raises(ApplianceCompilationError, "step-reads-iterator"):
            compile_noting(rows, 2, iter((1.0, 2.0)))


def test_a_step_that_counts_samples_in_python_needs_one_size() -> None:
    """``len`` is an int, so the recording holds for one size."""

    class Counts(Regression):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return super().forward(x * len(x), y)

    def compile_at(size: int) -> None:
        with running_backend(compile_only=True) as backend:
            backends.csx.performance.micro_batch_size = size
            cstorch.compile(Counts(), backend)
            losses(training_step(backend), executor(1, loader(lambda: random_batches(1, ROWS))))

    compile_at(8)
    with raises(ApplianceCompilationError, "step-depends-on-micro-batch-size") as caught:
        compile_at(5)
    assert "divides the batch" in (caught.value.remedy or "")


@pytest.mark.parametrize(("rows_that_fit", "is_named"), [(20, True), (4, False)])
def test_auto_names_the_size_of_fill_wafer(
    rows_that_fit: int, is_named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a system could take more samples at a time."""
    caplog.set_level(logging.INFO, "waferstream")
    train("auto", rows_that_fit, compile_only=True)
    assert ("fill_wafer would take micro-batches of 16" in caplog.text) == is_named


def test_auto_gives_the_same_weights_on_any_number_of_systems() -> None:
    """This holds also where the first size does not fit the wafer."""
    assert train("auto", 2) == train("auto", 2, num_csx=3)


@pytest.mark.parametrize("requested", [8, None])
def test_integer_size_that_does_not_fit_is_refused(requested: Any) -> None:
    """The remedy states the largest size that fits, in blocks if need be."""
    with raises(ApplianceResourceExhausted, "micro-batch-exceeds-sram") as caught:
        train(requested, 5, compile_only=True)
    assert "lower csx.performance.micro_batch_size to 7 or less" in str(caught.value.remedy)
    train(7, 5, compile_only=True)


@pytest.mark.parametrize(("requested", "fits", "group"), [(7, 32, 7), (4, 32, 3), ("auto", 3, 4)])
def test_micro_batches_that_cut_groups_are_refused(
    requested: Any, fits: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 7 at most, of 4, and of the 2 that fit."""
    monkeypatch.setattr(Regression, "group_of_samples", group, raising=False)
    with raises(ConfigError, "group-cut"):
        train(requested, fits, compile_only=True)
    monkeypatch.setattr(Regression, "group_of_samples", 2)
    train(4, compile_only=True)


def test_auto_refuses_a_step_if_no_sample_fits() -> None:
    """There is no smaller micro-batch than one sample."""
    with pytest.raises(ApplianceResourceExhausted) as caught:
        train("auto", 0, compile_only=True)
    assert "not even one sample fits" in str(caught.value.remedy)


def test_explore_names_the_fastest_size_that_fits(
    sizes: Sizes, caplog: pytest.LogCaptureFixture
) -> None:
    """The table has one line per size that fits."""
    train("explore", 20, compile_only=True)
    assert sizes()[-1] == 16
    table = caplog.text.split("Explored micro-batch sizes:")[1]
    assert re.findall(r"^(?:->|  ) +(\d+) +(\d+)", table, re.MULTILINE) == [
        ("1", "32"), ("2", "16"), ("3", "11"), ("4", "8"), ("5", "7"), ("6", "6"), ("7", "5"),
        ("8", "4"), ("11", "3"), ("16", "2"),
    ]  # fmt: skip
    assert "csx.performance.micro_batch_size: 16" in table
    assert "trying micro batch size 32" in caplog.text
    assert "Gradient accumulation picked micro batch size 16" in caplog.text


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_explore_takes_batches_below_the_captured_sizes(
    sizes: Sizes, rows: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Sizes are compared by captures of two and four samples, for any batch."""
    train("explore", rows=rows, compile_only=True)
    assert sizes() == [rows]
    assert "No benefit from gradient accumulation expected" in caplog.text


def test_explore_stays_in_its_range(sizes: Sizes) -> None:
    """Sizes from min to max are compared."""
    train({"explore": {"min": 2, "max": 4}}, compile_only=True)
    assert sizes()[-1] == 4


class Grouped(Regression):
    """Its loss is of four samples, which are laid out anew where there are more."""

    group_of_samples = 4

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        spread = x.unflatten(0, (-1, 4)).unflatten(-1, (2, 2)).transpose(1, 2).flatten(0, 1)
        return super().forward(x, y) + spread.square().mean()


@pytest.mark.parametrize(("most", "tried"), [(None, ["4", "8", "16"]), (7, ["4"])])
def test_explore_tries_whole_groups_of_samples(
    most: int | None, tried: list[str], sizes: Sizes, caplog: pytest.LogCaptureFixture
) -> None:
    """Of 16 rows of each of two systems; a single group has a recording of its own."""
    with running_backend(compile_only=True) as backend:
        backends.csx.performance.micro_batch_size = Explore(explore=SizeRange(max=most))
        cstorch.compile(Grouped(), backend)
        data = loader(lambda: random_batches(1, ROWS))
        losses(training_step(backend), executor(1, data))
    assert re.findall(r"trying micro batch size (\d+)", caplog.text) == tried
    assert sizes()[-1] in map(int, tried)


def test_explore_is_for_compiling_only() -> None:
    """Its size depends on the number of systems, and weights must not."""
    with raises(ConfigError, "explore-runs-nothing") as caught:
        train("explore")
    assert "--compile_only" in str(caught.value.remedy)


def test_second_program_finds_the_cached_compile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The artifact is used again with the same number of systems, and trains to the same bits."""
    caplog.set_level(logging.INFO, "waferstream")
    found = []
    digests = set()
    for num_csx in (1, 1, 2):
        caplog.clear()
        _, digest = train(4, num_csx=num_csx, compile_dir=tmp_path)
        digests.add(digest)
        found.append("Found existing cached compile" in caplog.text)
    assert found == [False, True, False]
    assert len(digests) == 1


def test_function_in_place_of_a_module_is_refused() -> None:
    """A function has no parameters that MemoryX could hold."""
    with running_backend() as backend, raises(ConfigError, "not-a-module"):
        cstorch.compile(lambda x: x, backend)  # type: ignore[arg-type]


@pytest.mark.nightly  # importing the compiler of torch takes seconds
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own modules
def test_module_of_torch_compile_is_taken_out_of_it() -> None:
    """Programs for GPUs call torch.compile by default, as nanoGPT's train.py does."""
    model = torch.nn.Linear(2, 3)
    with running_backend() as backend:
        assert cstorch.compile(torch.compile(model), backend) is model  # type: ignore[arg-type]
