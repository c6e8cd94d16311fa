"""The free bytes of a block of memory, as ranges that do not touch."""

from __future__ import annotations

from bisect import bisect_left


class FreeRanges:
    """Free ranges of ``num_bytes``, taken from the lowest offset at which a range is long enough.

    So the pages that are in use already are used again, and the highest offset that is ever used
    follows what is in use at a time instead of the number of different sizes. First fit in the
    order of addresses fragments least of the simple policies (Wilson et al., Dynamic Storage
    Allocation: A Survey and Critical Review, 1995, section 4.1).
    """

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self._starts: list[int] = []
        self._stops: list[int] = []
        self.clear()

    def clear(self) -> None:
        """Make all bytes free."""
        self._starts, self._stops = [0], [self.num_bytes]

    def take(self, num_bytes: int) -> int | None:
        """Return the lowest offset of so many free bytes, which are taken; None without them."""
        for place, (start, stop) in enumerate(zip(self._starts, self._stops, strict=True)):
            if stop - start > num_bytes:
                self._starts[place] += num_bytes
                return start
            if stop - start == num_bytes:
                del self._starts[place], self._stops[place]
                return start
        return None

    def give_back(self, start: int, num_bytes: int) -> None:
        """Make a range free that was taken, and join it with its neighbours.

        Raises:
            RuntimeError: A byte of it is free already.
        """
        stop = start + num_bytes
        place = bisect_left(self._starts, start)
        before = self._stops[place - 1] if place else 0
        after = self._starts[place] if place < len(self._starts) else self.num_bytes
        if start < before or stop > after:
            raise RuntimeError(f"bytes {start} to {stop} were given back twice")
        if place < len(self._starts) and after == stop:
            stop = self._stops[place]
            del self._starts[place], self._stops[place]
        if place and before == start:
            self._stops[place - 1] = stop
        else:
            self._starts.insert(place, start)
            self._stops.insert(place, stop)
