"""What a loader may ask about the cluster."""

from __future__ import annotations

from pathlib import Path

from cstorch import distributed
from tests.support.errors import raises
from waferstream.core.errors import ConfigError


def test_there_is_one_reader_of_data() -> None:
    spec = distributed.service_resolver().cluster_spec
    assert (spec.num_tasks(), spec.task().rank, spec.task(0).wse_id) == (1, 0, 0)
    assert (distributed.get_rank(), distributed.get_world_size()) == (0, 1)
    assert distributed.is_master_ordinal()
    assert distributed.get_streaming_batch_size(12, global_rank=3) == 12
    for wrong in (0, 2.5):
        with raises(ConfigError, "batch-size-not-whole"):
            distributed.get_streaming_batch_size(wrong)  # type: ignore[arg-type]


def test_a_small_folder_fits_the_cache(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    is_over, size, left = distributed.hit_worker_cache_limit(str(tmp_path), str(tmp_path / "copy"))
    assert size == 5
    assert is_over == (left < 5)


def test_workers_have_no_state_outside_of_a_loader_s() -> None:
    with raises(ConfigError, "worker-state-outside-state-dict"):
        distributed.get_worker_state()
