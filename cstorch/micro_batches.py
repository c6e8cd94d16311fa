"""How a global batch is cut into micro-batches: never by the number of systems.

The micro-batch decides the order of every floating-point sum, so it depends on the batch alone
wherever it can; that is what keeps the weights the same for every ``num_csx``.
"""

from __future__ import annotations

from wsc.core.errors import ConfigError

AUTO_MICRO_BATCHES = 8


def micro_batch_size(batch_size: int, requested: int | str | None, num_csx: int) -> int:
    """Samples per micro-batch.

    An integer is taken as it is and must divide the batch. ``auto`` is the largest divisor that
    leaves at least max(8, num_csx) micro-batches (or one sample each, if the batch is smaller), so
    it is the same for 1 to 8 systems. None gives every system one micro-batch. Raises ConfigError
    where the batch cannot be cut so.
    """
    if batch_size < num_csx:
        raise ConfigError(
            "the global batch is smaller than the number of systems",
            value=f"batch_size {batch_size}, num_csx {num_csx}",
            rule="batch_size is at least num_csx",
            remedy="raise batch_size or lower num_csx",
        )
    if requested == "auto":
        wanted = min(batch_size, max(AUTO_MICRO_BATCHES, num_csx))
        return max(size for size in _divisors(batch_size) if batch_size // size >= wanted)
    size = -(-batch_size // num_csx) if requested is None else int(requested)
    if batch_size % size:
        allowed = [divisor for divisor in _divisors(batch_size) if batch_size // divisor >= num_csx]
        near = sorted(allowed, key=lambda divisor: abs(divisor - size))[:3]
        raise ConfigError(
            f"a global batch of {batch_size} cannot be cut into micro-batches of {size}",
            where="csx.performance.micro_batch_size",
            value=requested,
            rule="micro_batch_size divides batch_size",
            remedy=f"choose {' or '.join(map(str, sorted(near)))}",
        )
    return size


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]
