"""What the numbers around the wafers say of the way of the training data."""

from hypothesis import given
from hypothesis import strategies as st

from wsc.core.units import PS_PER_S
from wsc.timing.hardware import InputSpec


def test_workers_load_side_by_side() -> None:
    """A worker loads its samples per second; two take half the time."""
    for workers, took_ps in ((1, PS_PER_S), (2, PS_PER_S // 2)):
        spec = InputSpec(samples_per_s_per_worker=500, workers_per_system=workers)
        assert spec.load_ps(500) == took_ps


def test_the_default_loader_is_out_of_the_way() -> None:
    """BERT-large trains at up to 7,300 samples/s on a CS-2; loading takes a tenth of that time."""
    assert InputSpec().load_ps(7_300) < PS_PER_S / 10


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 100))
def test_a_faster_or_second_worker_never_loads_slower(
    num_samples: int, rate: int, workers: int
) -> None:
    """Twice the rate or twice the workers take no longer; more samples do."""
    spec = InputSpec(samples_per_s_per_worker=rate, workers_per_system=workers)
    faster = InputSpec(samples_per_s_per_worker=2 * rate, workers_per_system=workers)
    more = InputSpec(samples_per_s_per_worker=rate, workers_per_system=2 * workers)
    assert faster.load_ps(num_samples) == more.load_ps(num_samples) <= spec.load_ps(num_samples)
    assert spec.load_ps(num_samples) < spec.load_ps(num_samples + 1)
