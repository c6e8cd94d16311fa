"""Files and batches of several owners, each in a folder of its own, so that none sees another's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from waferstream.serving.batches.files import FileStore
from waferstream.serving.batches.queue import BatchQueue
from waferstream.serving.batches.running import Ask

_OF = "of-"
"""How the folder of an owner begins; that of nobody is the folder of all."""


@dataclass(frozen=True)
class Shelf:
    """The files and batches of an owner."""

    files: FileStore
    batches: BatchQueue


class Shelves:
    """The files and batches of all owners; all calls come from the loop of the service.

    Args:
        folder: Where they lie.
        ask: Returns what answers the requests of an owner.
    """

    def __init__(self, folder: Path, ask: Callable[[str], Ask]) -> None:
        self._folder = folder
        self._ask = ask
        self._shelves: dict[str, Shelf] = {}
        self._running = AsyncExitStack()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer the batches that have not ended, until the block ends."""
        async with self._running:
            for owner in ["", *(each.name[len(_OF) :] for each in self._folder.glob(f"{_OF}*"))]:
                await self.of(owner)
            yield

    async def of(self, owner: str) -> Shelf:
        """Return what an owner has.

        Args:
            owner: The name of a key, which can name a folder; nothing for a service without keys.

        Raises:
            OSError: It cannot be kept.
        """
        if owner not in self._shelves:
            folder = self._folder / f"{_OF}{owner}" if owner else self._folder
            folder.mkdir(mode=0o700, exist_ok=True)
            files = FileStore(folder)
            shelf = self._shelves[owner] = Shelf(files, BatchQueue(folder, files, self._ask(owner)))
            await self._running.enter_async_context(shelf.batches.running())
        return self._shelves[owner]
