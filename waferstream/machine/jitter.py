"""Stragglers and jitter: the time factor of the slowest of many systems, drawn from a seed.

Systems that work on the same segment of the same round wait for each other in the reduction, so
only the time of the slowest counts. Its factor is drawn directly instead of one per system: if one
factor has the distribution F, the largest of n independent factors has F to the power n, and
F^-1(u^(1/n)) draws it from one uniform number u. So 2,048 systems need as many draws as one system,
and with the same u more systems are never faster.

u depends on seed, step, round and segment alone, never on host time or order, so every kind of
cluster draws the same. Factors are log-normal with median 1.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from waferstream.core.rng import stream_key
from waferstream.machine.hardware import JitterSpec

_NORMAL = NormalDist()


def slowest_factor(sigma: float, count: int, seed: int, *coordinates: int | str) -> float:
    """Return the largest of ``count`` log-normal factors with median 1; 1 without spread."""
    if not sigma or not count:
        return 1.0
    bits = stream_key(seed, *coordinates) >> 11  # 52 bits: a float between 0 and 1, never either
    log_u = math.log((bits + 0.5) / 2**52)
    beyond = -math.expm1(log_u / count)  # 1 - u^(1/n), exact where u^(1/n) is nearly 1
    return math.exp(sigma * -_NORMAL.inv_cdf(beyond))


def scaled(amount: int, factor: float) -> int:
    """Return a time, or the bytes of a transfer, times a factor; exact for a factor of 1."""
    return amount if factor == 1.0 else round(amount * factor)


def slowed(rate_per_s: int, factor: float) -> int:
    """Return a rate divided by a factor, never zero; exact for whole factors."""
    whole = int(factor)
    return max(1, rate_per_s // whole if whole == factor else int(rate_per_s / factor))


class Jitter:
    """Time factors of one machine, for kernels of systems and transfers through the tree."""

    def __init__(self, spec: JitterSpec) -> None:
        self._spec = spec
        self._slow = {
            int(role.removeprefix("csx-")): factor
            for role, factor in spec.stragglers.items()
            if role.startswith("csx-")
        }

    def kernel(self, step: int, round_index: int, segment: int, num_systems: int) -> float:
        """Return the factor of the slowest of the systems 0 to ``num_systems - 1`` in one segment.

        A straggler has a draw of its own, times its factor.
        """
        spec, at = self._spec, (step, round_index, segment)
        if not spec.kernel_sigma and not self._slow:
            return 1.0
        slow = {system: by for system, by in self._slow.items() if system < num_systems}
        factors = [
            by * slowest_factor(spec.kernel_sigma, 1, spec.seed, "kernel", *at, system)
            for system, by in slow.items()
        ]
        if num_even := num_systems - len(slow):
            factors.append(slowest_factor(spec.kernel_sigma, num_even, spec.seed, "kernel", *at))
        return max(factors, default=1.0)

    def transfer(
        self, direction: str, step: int, round_index: int, bucket: int, num_systems: int
    ) -> float:
        """Return the factor of the slowest link that a bucket takes, ``"down"`` or ``"up"``."""
        spec = self._spec
        at = (direction, step, round_index, bucket)
        return slowest_factor(spec.transfer_sigma, num_systems, spec.seed, *at)
