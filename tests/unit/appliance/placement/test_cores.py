"""The pool of cores limits how many roles compute, across threads and processes."""

import os
import pickle
import select
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from appliance.placement.cores import CorePool, UnlimitedCores, cores_of_host
from tests.support.errors import raises
from tests.support.host.processes import descriptors
from waferstream.core.errors import ApplianceRuntimeServerError


@pytest.fixture
def pool() -> Iterator[CorePool]:
    pool = CorePool(2)
    yield pool
    pool.close()


def test_auto_cores_are_all_cores_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container or taskset may allow fewer than the computer has; a number is used as given."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 6})
    assert cores_of_host("auto") == 3
    assert cores_of_host(8) == 8


def test_core_pool_limits_the_leases(pool: CorePool) -> None:
    """Of many threads that want a core, at most two hold one at a time, and all get theirs."""
    guard = threading.Lock()
    holding, most, done = 0, 0, 0

    def work() -> None:
        nonlocal holding, most, done
        for _ in range(50):
            with pool.lease():
                with guard:
                    holding += 1
                    most = max(most, holding)
                with guard:
                    holding -= 1
                    done += 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 2
    assert done == 8 * 50


def test_all_cores_can_be_leased(pool: CorePool) -> None:
    """The pool leases all of its cores."""
    with pool.lease(), pool.lease():
        pass


def test_core_returns_when_work_fails() -> None:
    """A role that raises while it computes does not keep its core."""
    pool = CorePool(1)
    with pytest.raises(ZeroDivisionError), pool.lease():
        _ = 1 / 0
    with pool.lease():
        pass
    pool.close()


def test_unpickled_core_pool_shares_the_tokens() -> None:
    """Two handles of one pool wait for each other."""
    pool = CorePool(1)
    twin = pickle.loads(pickle.dumps(pool))
    with pool.lease():
        assert not _readable(twin)
    with twin.lease():
        assert not _readable(pool)
    twin.close()
    pool.close()


def test_core_pool_is_shared_with_other_processes(pool: CorePool) -> None:
    """A process that takes a token and dies with it leaves one for the others."""
    code = (
        "import os, pickle, sys\n"
        "lease = pickle.loads(bytes.fromhex(sys.argv[1])).lease()\n"
        "lease.__enter__()\n"
        "os._exit(0)\n"
    )
    command = [sys.executable, "-c", code, pickle.dumps(pool).hex()]
    subprocess.run(command, check=True, timeout=60)
    with pool.lease():
        assert not _readable(pool)


def test_closed_core_pool_is_refused() -> None:
    """A handle whose process has closed the pipe is an error."""
    pool = CorePool(1)
    handle = pickle.dumps(pool)
    pool.close()
    with raises(ApplianceRuntimeServerError, "core-pool-closed"):
        pickle.loads(handle)


def test_unlimited_cores_never_wait() -> None:
    """In one process leases may be nested."""
    cores = UnlimitedCores()
    with cores.lease(), cores.lease():
        pass


def _readable(pool: CorePool) -> bool:
    """Whether a token is left."""
    return bool(select.select([pool._pipe], [], [], 0)[0])


def test_refilled_pool_has_all_its_cores(pool: CorePool) -> None:
    """Tokens of killed processes come back, and none comes twice; also through another process."""
    for _ in range(2):
        os.read(pool._pipe, 1)
        other: CorePool = pickle.loads(pickle.dumps(pool))
        other.refill()
        other.close()
        assert len(os.read(pool._pipe, 10)) == 2
        pool.refill()


def test_dropped_core_pool_leaves_no_descriptor(pool: CorePool) -> None:
    """Each attempt of a job sends every role a pool, and a role keeps its first one."""
    before = descriptors()
    for _ in range(3):
        pickle.loads(pickle.dumps(pool))
    assert descriptors() <= before
