"""The default workload of the streaming benchmark."""

from __future__ import annotations

from benchmarks.streaming.workload import Workload


def test_num_parameters_of_the_default_workload_is_98_million() -> None:
    """12 layers of 7.1 M, 16,384 tokens and 512 positions of 768, as benchmarks/README.md says."""
    workload = Workload(
        hidden=768,
        layers=12,
        vocab=16384,
        sequence_length=512,
        batch_size=8,
        precision="fp32",
        cores=2,
    )
    layer = 12 * 768**2 + 13 * 768
    assert workload.num_parameters() == (16384 + 512) * 768 + 12 * layer + 2 * 768
    assert workload.micro_batch_size == 1
