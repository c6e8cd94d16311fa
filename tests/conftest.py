"""Settings of every test: one compute thread, so that results do not depend on the host."""

import gc
import hashlib
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
import torch
from hypothesis import settings
from xdist.scheduler import LoadGroupScheduling

from cstorch.current import existing_backend
from waferstream.host.terminal import TerminalHandler

mpl.use("Agg")
torch.set_num_threads(1)

gc.disable()  # until all tests are collected, which makes objects that stay

# A shell ignores Ctrl-C for what it runs in the background, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Ray runs its workers at nice 15: beside other tests on two cores they would get no processor.
os.environ.setdefault("RAY_worker_niceness", "0")

# A first example may import or compile something; pytest's own timeout ends what hangs.
settings.register_profile("waferstream", deadline=None)
settings.load_profile("waferstream")


@pytest.fixture(scope="session", autouse=True)
def state_folder_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the jobs of tests, and of programs that they start, out of the user's own list."""
    before = os.environ.get("WAFERSTREAM_STATE")
    state = tmp_path_factory.mktemp("state")
    os.environ["WAFERSTREAM_STATE"] = str(state)
    share_compiles(state, tmp_path_factory.getbasetemp())
    yield
    if before is None:
        del os.environ["WAFERSTREAM_STATE"]
    else:
        os.environ["WAFERSTREAM_STATE"] = before


def share_compiles(state: Path, base: Path) -> None:
    """Let the processes of ``make test`` have one compile cache, and one key that seals it."""
    if (session := os.environ.get("PYTEST_XDIST_TESTRUNUID")) is None:
        return
    shared = base.parent / "compiled"
    shared.mkdir(exist_ok=True)
    (state / shared.name).symlink_to(shared, target_is_directory=True)
    key = state / "cache.key"
    key.touch(mode=0o600)
    key.write_bytes(hashlib.sha256(session.encode()).digest())


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    """Undo what a command that ran in this process, for a test or its fixtures, did to the log."""
    _forget_commands()
    yield
    _forget_commands()


def _forget_commands() -> None:
    log = logging.getLogger("waferstream")
    log.handlers[:] = [each for each in log.handlers if not isinstance(each, TerminalHandler)]
    log.propagate = True
    if log.level != logging.NOTSET:  # to set a level clears what every logger of the process keeps
        log.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def no_backend_left() -> Iterator[None]:
    """End the backend that a failed test left, so that later tests do not fail for it."""
    earlier = existing_backend()
    yield
    backend = existing_backend()
    if backend is not None and backend is not earlier:
        backend.shutdown()


@pytest.fixture
def hang_up_ends() -> Iterator[None]:
    """Let SIGHUP end what the test starts, also where nohup, which ignores it, runs the suite."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def pytest_collection_finish() -> None:
    """Take what imports and collection have made, which stays, out of later garbage collections.

    These are rare, too: the graphs that tests record live on, and each collection reads them all.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


class FileScheduling(LoadGroupScheduling):  # type: ignore[misc]  # xdist has no types
    """The tests of a file run in one process, which makes once what they share; so do groups."""

    def _split_scope(self, nodeid: str) -> str:
        group: str = super()._split_scope(nodeid)
        return group.split("::", maxsplit=1)[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling:
    """Schedule files and groups, not single tests (``make test``)."""
    return FileScheduling(config, log)


# Before xdist's own hook, which reads the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run Ray clusters one at a time while other tests run in parallel (``make test``)."""
    for item in items:
        if item.get_closest_marker("ray"):
            item.add_marker(pytest.mark.xdist_group("ray"))
