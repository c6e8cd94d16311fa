"""A private Ray that starts by its public interface alone, as of a release that we do not know."""

import os

import pytest

from tests.support.host.processes import descendants, wait_for_end
from tests.support.runs.tiny_training import Shape, init_config, train_on_cluster

pytestmark = [pytest.mark.ray, pytest.mark.nightly, pytest.mark.timeout(240)]


def test_run_without_changes_of_ray_has_the_same_weights() -> None:
    """And leaves no process."""
    before = descendants(os.getpid())
    plain = train_on_cluster(init_config(), Shape(kind="ray", fast_start=False), 1)
    started = descendants(os.getpid()) - before
    assert plain == train_on_cluster(init_config(), Shape(), 1)
    assert wait_for_end(started) == set()
