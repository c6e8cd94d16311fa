"""Each event is told once, also by a notifier that begins anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.management.embedded import Runs
from waferstream.host.user_state import state_folder
from waferstream.management.client.client import STORE
from waferstream.management.model import event
from waferstream.management.model.job import Phase
from waferstream.management.model.notification import Notification
from waferstream.management.notices.notice import Notice
from waferstream.management.notices.notifier import Notifier
from waferstream.management.notices.sender import Relays, Sender
from waferstream.management.store.opening import open_store
from waferstream.management.store.store import Store


class Kept(Sender):
    """Keeps what it would send."""

    def __init__(self) -> None:
        super().__init__(Relays())
        self.sent: list[tuple[str, tuple[str, ...]]] = []

    def send(self, notice: Notice, target: Notification) -> list[str]:
        """Keep a notice, and say that it was not sent."""
        self.sent.append((notice.title, target.mailto))
        return ["mail: refused"]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """Return runs with a store of their own."""
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path / "state"))
    found = Runs()
    yield found
    found.client.close()


@pytest.fixture
def store(runs: Runs) -> Iterator[Store]:
    """Return the store of the runs."""
    found = open_store(state_folder() / STORE)
    yield found
    found.close()


def test_each_end_is_told_once(runs: Runs, store: Store, tmp_path: Path) -> None:
    """To those who want to know; what had happened before is not."""
    sender, place = Kept(), tmp_path / "place"
    all_ends = Notification(mailto=("ann@example.org",))
    failures = Notification(mailto=("bob@example.org",), severity_threshold=1)
    earlier = runs.submit(notifications=(all_ends,))
    runs.note(earlier, event.Ended(result=Phase.FAILED))
    notifier = Notifier(store, sender, place)
    notifier.turn()
    good, bad = (runs.submit(notifications=(all_ends, failures)) for _ in range(2))
    runs.note(good, event.Ended(result=Phase.SUCCEEDED))
    notifier.turn()
    runs.note(bad, event.Ended(result=Phase.FAILED))
    Notifier(store, sender, place).turn()
    notifier.turn()
    assert [(good.name in title, to[0][:3]) for title, to in sender.sent] == [
        (True, "ann"),
        (False, "ann"),
        (False, "bob"),
    ]


def test_notifier_works_beside_its_store(runs: Runs, store: Store, tmp_path: Path) -> None:
    notifier = Notifier(store, Kept(), tmp_path / "place")
    notifier.start()
    notifier.close()
    notifier.close()
