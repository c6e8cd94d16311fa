"""A running management: its store, its launcher, its manager, its doors and its pages."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from waferstream.core.errors import WaferStreamError
from waferstream.core.secrets import digest_of
from waferstream.host.processes import user_name
from waferstream.host.user_state import make_private, open_private
from waferstream.management.door.authentication import Authentication
from waferstream.management.door.doors import Doors, DoorSettings
from waferstream.management.launch.launcher import Launcher
from waferstream.management.launch.process import ProcessLauncher
from waferstream.management.manager.administration import add_user
from waferstream.management.manager.folders import Folders
from waferstream.management.manager.launches import Launches
from waferstream.management.manager.leadership import lead
from waferstream.management.manager.manager import Manager
from waferstream.management.manager.run_tokens import workflow_of
from waferstream.management.model.inventory import Inventory
from waferstream.management.model.operations import Caller
from waferstream.management.notices.notifier import Notifier
from waferstream.management.notices.sender import Relays, Sender
from waferstream.management.store.opening import open_store
from waferstream.management.store.store import Store
from waferstream.management.web.router import pages_router

log = logging.getLogger("waferstream")

TURN_S = 0.5
"""The longest time between two turns of the manager."""

_AGAIN_S = 2.0  # after a turn has failed


@dataclass(frozen=True)
class ServerSettings:
    """What a management is started with.

    Attributes:
        folder: Of all its files.
        inventory: What it has.
        store: Path or URL of its store; by default a file in the folder.
        ray_address: Of the Ray cluster whose Jobs API starts workflows; None starts processes.
        doors: Where it listens.
        relays: Through what it tells users of their workflows.
        user_bytes: What the files of a user's workflows may take; None for any amount.
    """

    folder: Path
    inventory: Inventory
    store: str | None = None
    ray_address: str | None = None
    doors: DoorSettings = field(default_factory=DoorSettings)
    relays: Relays = field(default_factory=Relays)
    user_bytes: int | None = None


@dataclass(frozen=True)
class Running:
    """A management that runs.

    Attributes:
        doors: Where it listens.
        token: Of the administrator who has started it.
    """

    doors: Doors
    token: str


@contextmanager
def running(settings: ServerSettings) -> Iterator[Running]:
    """Run a management as long as the block lasts; what it has launched goes on after that.

    Raises:
        ConfigError: The store, a port or a certificate cannot be used, or another management
            leads the store.
        ApplianceServiceInterrupted: The store does not answer.
    """
    make_private(settings.folder)
    with ExitStack() as stack:
        store = open_store(settings.store or settings.folder / "store.sqlite")
        stack.callback(store.close)
        token = _administrator(store, settings)
        launcher = _launcher(settings)
        stack.callback(launcher.close)
        launches = Launches(launcher, Folders(settings.folder, settings.user_bytes))
        manager = Manager(store, launches)
        authentication = Authentication(store.reading, workflow_of)
        settings_of_doors = replace(settings.doors, routers=(pages_router,))
        doors = stack.enter_context(Doors(manager, authentication, settings_of_doors))
        launches.address, launches.pages = doors.address, doors.url
        manager.pages = doors.url
        stack.enter_context(_turning(manager))
        notifier = Notifier(store, Sender(settings.relays), settings.folder / "notified")
        notifier.start()
        stack.callback(notifier.close)
        yield Running(doors, token)


def _launcher(settings: ServerSettings) -> Launcher:
    if settings.ray_address is None:
        return ProcessLauncher(settings.folder / "launches")
    from waferstream.management.launch.ray import RayLauncher  # noqa: PLC0415  (only with Ray)

    return RayLauncher(settings.ray_address, settings.folder)


def _administrator(store: Store, settings: ServerSettings) -> str:
    """Keep what the management has, and its first user; return that one's token."""
    path = settings.folder / "administrator.token"
    with store.change() as changes:
        lead(changes, time.time())
        changes.put_inventory(settings.inventory)
        if path.is_file():
            token = path.read_text().strip()
            if changes.caller_of(digest_of(token)) is not None:
                return token
        first = Caller(user=user_name(), role="administrator")
        token = add_user(changes, first, time.time())
    with open(path, "w", encoding="utf-8", opener=open_private) as file:
        file.write(token + "\n")
    return token


@contextmanager
def _turning(manager: Manager) -> Iterator[None]:
    """Let the manager take its turns in a thread."""
    ended = threading.Event()
    thread = threading.Thread(target=_turn, args=(manager, ended), name="turns", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        manager.news.set()
        thread.join()


def _turn(manager: Manager, ended: threading.Event) -> None:
    while not ended.is_set():
        manager.news.wait(TURN_S)
        manager.news.clear()
        try:
            manager.tick()
        except (OSError, WaferStreamError) as error:
            log.warning("The next turn comes later: %s", error)
            ended.wait(_AGAIN_S)
        except Exception:
            log.exception("A turn of the management has failed")
            ended.wait(_AGAIN_S)
