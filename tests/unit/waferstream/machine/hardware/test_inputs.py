"""What loading samples takes the input workers of a system."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.core.program.program import Loading
from waferstream.core.units import PS_PER_S
from waferstream.machine.hardware import InputSpec

KINDS = st.sampled_from(["hdf5", "csv", "npz", "jpeg", "other"])
SPEC = InputSpec.model_validate({"other": {"sample_ps": 1000, "element_ps": 10}})


def test_a_batch_takes_its_samples_and_their_elements() -> None:
    """Both have a time; what is not whole is rounded up."""
    assert SPEC.load_ps(Loading(), num_samples=3, num_elements=7) == 3070
    assert SPEC.load_ps(Loading(num_workers=3), 3, 7) == 1024


def test_all_processes_of_all_workers_share_the_work() -> None:
    """No processes are the worker's own; no number of workers is the machine's."""
    assert SPEC.load_ps(Loading(num_workers=0), 8, 0) == 8000
    assert SPEC.load_ps(Loading(num_workers=4, num_workers_per_csx=2), 8, 0) == 1000
    two = SPEC.model_copy(update={"workers_per_system": 2})
    assert two.load_ps(Loading(num_workers=4), 8, 0) == 1000
    assert two.load_ps(Loading(num_workers_per_csx=1), 8, 0) == 8000


def test_a_sample_is_looked_for_in_every_file() -> None:
    """One file is part of what a sample takes; each further one adds to it."""
    spec = InputSpec.model_validate({"other": {"sample_ps": 1000, "file_ps": 3}})
    assert spec.load_ps(Loading(num_files=1), num_samples=2, num_elements=0) == 2000
    assert spec.load_ps(Loading(num_files=101), num_samples=2, num_elements=0) == 2600


@pytest.mark.parametrize(("files", "measured_us"), [(100, 88), (500, 377), (2000, 1490)])
def test_hdf5_files_by_the_hundred_take_what_was_measured(files: int, measured_us: int) -> None:
    """On top of what a sample from one file takes: within 15 %."""
    few, many = (InputSpec().load_ps(Loading("hdf5", num_files=n), 1, 0) for n in (1, files))
    assert many - few == pytest.approx((measured_us - 22) * PS_PER_S // 10**6, rel=0.15)


def test_a_loader_without_known_cost_is_out_of_the_way() -> None:
    """Made-up data and loaders of one's own take no time."""
    assert InputSpec().load_ps(Loading(), 10**6, 10**9) == 0


@pytest.mark.parametrize(
    ("kind", "elements", "measured_us"),
    [
        ("hdf5", 3 * 2048, 97),
        ("csv", 3 * 128 + 3 * 20 + 1, 475),
        ("npz", 2 * 4 * 32 * 32 + 2, 534),
        ("jpeg", 3 * 224 * 224 + 1, 6260),
    ],
)
def test_the_kinds_take_what_was_measured(kind: str, elements: int, measured_us: int) -> None:
    """A GPT's sequence of 2,048, BERT's of 128, the images of a DiT and a ViT: within 15 %."""
    load_ps = InputSpec().load_ps(Loading(kind), 1, elements)  # type: ignore[arg-type]
    assert load_ps == pytest.approx(measured_us * PS_PER_S // 10**6, rel=0.15)


@given(KINDS, st.integers(1, 10**4), st.integers(0, 10**6), st.integers(1, 64), st.integers(1, 8))
def test_more_hands_never_load_slower_and_more_work_never_faster(
    kind: str, samples: int, elements: int, processes: int, workers: int
) -> None:
    """Twice the processes are as good as twice the workers."""

    def load_ps(processes: int, workers: int, samples: int = samples) -> int:
        return InputSpec().load_ps(Loading(kind, processes, workers), samples, elements)  # type: ignore[arg-type]

    once = load_ps(processes, workers)
    assert load_ps(2 * processes, workers) == load_ps(processes, 2 * workers) <= once
    assert load_ps(processes, workers, samples + 1) >= once
