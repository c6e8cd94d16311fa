"""The tiers of the emulated MemoryX: which part of the model is in DRAM, which in flash behind it.

A step accesses masters twice a round (forward and backward), gradient sums once a round, and
optimizer state once, at its update. So DRAM is filled with masters first, then sums, then state;
the remainder is in flash and passes through DRAM at each access. Every tensor of a kind is split
in the same proportion, so a model slightly larger than DRAM is slightly slower. How the vendor
divides the two is not published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.program.program import MASTER_BYTES, Program
from waferstream.core.program.stream_plan import GRADIENT_BYTES
from waferstream.core.sparsity.nonzero_bytes import bitmap_bytes
from waferstream.core.sparsity.spec import WeightSparsity
from waferstream.core.units import format_bytes
from waferstream.machine.hardware import MemoryXSpec


@dataclass(frozen=True)
class Holding:
    """The bytes of one kind of data, and how many of them are in flash."""

    num_bytes: int = 0
    flash_bytes: int = 0

    def in_flash(self, num_bytes: int) -> int:
        """Return how many of ``num_bytes`` of this kind are in flash, rounded up."""
        return -(-num_bytes * self.flash_bytes // self.num_bytes) if self.flash_bytes else 0


@dataclass(frozen=True)
class Tiers:
    """The data of a model in MemoryX, by kind; empty by default."""

    masters: Holding = Holding()
    sums: Holding = Holding()
    state: Holding = Holding()

    @property
    def flash_bytes(self) -> int:
        return sum(kind.flash_bytes for kind in (self.masters, self.sums, self.state))

    @property
    def dram_bytes(self) -> int:
        num_bytes = sum(kind.num_bytes for kind in (self.masters, self.sums, self.state))
        return num_bytes - self.flash_bytes


def tiers_of(
    program: Program,
    spec: MemoryXSpec,
    state_bytes_per_element: int = 0,
    sparse: Sequence[WeightSparsity] = (),
) -> Tiers:
    """Return the tiers of one program's data.

    Of a sparse weight, its master, gradient sum and state are the values of non-zeros, and the
    master has a mask of one bit per element; the density is the largest one of its schedule. While
    weights are loaded they are whole, so whole masters have to fit as well.

    Args:
        program: The program.
        spec: MemoryX.
        state_bytes_per_element: Optimizer state of a trained element.
        sparse: The weights that have masks.

    Raises:
        ApplianceResourceExhausted: The data do not fit DRAM and flash together.
    """
    parameter = program.parameter
    fill_tiers(spec, program.num_elements(parameter))
    held = {name: spec.num_elements for name, spec in parameter.items()}
    sums, mask_bytes = dict(held), 0
    for each in sparse:
        size = held[each.name]
        held[each.name] = ceil(size * each.largest_density(parameter[each.name].shape))
        if not each.reads_dense_gradients:
            sums[each.name] = held[each.name]
        mask_bytes += bitmap_bytes(size)
    trained = sum(held[name] for name in program.trained)
    needs = {
        "fp32 weights": sum(held.values()) * MASTER_BYTES + mask_bytes,
        "gradient sums": sum(sums[name] for name in program.trained) * GRADIENT_BYTES,
        "optimizer state": trained * state_bytes_per_element,
    }
    return _filled(spec, needs)


def fill_tiers(
    spec: MemoryXSpec,
    num_elements: int,
    num_trained: int = 0,
    state_bytes_per_element: int = 0,
) -> Tiers:
    """Place a dense model of ``num_elements`` parameters, of which ``num_trained`` are trained.

    Raises:
        ApplianceResourceExhausted: The model does not fit DRAM and flash together.
    """
    needs = {
        "fp32 weights": num_elements * MASTER_BYTES,
        "gradient sums": num_trained * GRADIENT_BYTES,
        "optimizer state": num_trained * state_bytes_per_element,
    }
    return _filled(spec, needs)


def _filled(spec: MemoryXSpec, needs: Mapping[str, int]) -> Tiers:
    """Place masters, sums and state in this order, in DRAM as far as they fit there."""
    if sum(needs.values()) > spec.dram_bytes + spec.flash_bytes:
        raise _does_not_fit(spec, needs)
    free_bytes = spec.dram_bytes
    holdings = []
    for num_bytes in needs.values():
        in_dram = min(free_bytes, num_bytes)
        free_bytes -= in_dram
        holdings.append(Holding(num_bytes, num_bytes - in_dram))
    return Tiers(*holdings)


def _does_not_fit(spec: MemoryXSpec, needs: Mapping[str, int]) -> ApplianceResourceExhausted:
    parts = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in needs.items() if size)
    return ApplianceResourceExhausted(
        f"the model needs {format_bytes(sum(needs.values()))} of MemoryX",
        code="model-exceeds-memoryx",
        value=parts,
        rule=f"MemoryX has {format_bytes(spec.dram_bytes)} of DRAM "
        f"and {format_bytes(spec.flash_bytes)} of flash",
        remedy="choose a smaller model, or raise memoryx.dram_bytes or memoryx.flash_bytes "
        "in cluster.yaml",
    )
