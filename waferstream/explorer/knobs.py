"""What can be changed on the page: each knob with its keys of params.yaml and cluster.yaml.

A knob that was not moved changes nothing, so the page begins with the files as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from appliance.spec import ClusterSpec
from waferstream.config.params import Params
from waferstream.machine.hardware import MachineSpec, WaferSpec
from waferstream.machine.hardware.wafer import SYSTEMS as SYSTEMS_BY_NAME
from waferstream.management.model.inventory import MOST_SYSTEMS
from waferstream.workload.model_config import ModelConfig
from waferstream.workload.models import known_config

SYSTEMS = "systems"
KIND = "kind"
KINDS = dict(enumerate(SYSTEMS_BY_NAME, start=1))
"""Kinds of systems, by the number that stands for each in a setting."""
DENSITY = "density"
SEQUENCE = "sequence"
DEPTH = "layers"
SLOW = (DEPTH, SEQUENCE)
"""Knobs whose answers take longest, as they change the step itself."""

NUM_CSX = "trainer.init.backend.cluster_config.num_csx"
BATCH_SIZE = "trainer.fit.train_dataloader.batch_size"
SEQUENCE_LENGTH = "trainer.fit.train_dataloader.max_sequence_length"
POSITIONS = "trainer.init.model.max_position_embeddings"
LAYERS = "trainer.init.model.num_hidden_layers"
SPARSITY = "trainer.init.sparsity"
LINKS = (
    "machine.swarmx.link_bandwidth_bytes_per_s",
    "machine.memoryx.bandwidth_bytes_per_s",
    "machine.system.io_bandwidth_bytes_per_s",
)
"""The links that a weight passes: the narrowest of them counts, so one knob moves all."""
MEMORY = "machine.memoryx.memory_bandwidth_bytes_per_s"
CLOCK = "machine.system.clock_hz"
SYSTEM = "machine.system.name"
FAN_OUT = "machine.swarmx.fan_out"

_COUNTS = tuple(1 << power for power in range(8))
_DENSITIES = (0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0)
_OCTAVES = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
_NEAR_OCTAVES = _OCTAVES[1:-1]
_HALF_OCTAVES = (1 / 8, 0.18, 1 / 4, 0.35, 1 / 2, 0.7, 1, 1.4, 2, 2.8, 4)
_TENTHS = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2)
_MOST_LAYERS = 1024
_MOST_TOKENS = 1 << 20
_MOST_SAMPLES = 1 << 24
_MOST_RATE = 10**18

COARSE_STOPS = 5
"""Stops of a knob in an exported page, whose answers are all in it."""


@dataclass(frozen=True)
class Knob:
    """A number that the page changes."""

    name: str
    label: str
    keys: tuple[str, ...]
    """Dotted keys that take the number, from ``trainer`` or ``machine`` on."""
    value: float
    """That of the files."""
    stops: tuple[float, ...]
    """Where its slider stops, in ascending order; ``value`` is one of them."""
    least: float
    most: float
    unit: str = ""
    scale: float = 1
    """What the page divides by to show a number in its unit."""
    is_whole: bool = True
    names: tuple[str, ...] = ()
    """What its stops are called, where they are no numbers: the page shows a switch."""

    @property
    def coarse(self) -> tuple[float, ...]:
        """A few of the stops, evenly spaced, ``value`` among them."""
        below = [stop for stop in self.stops if stop < self.value]
        above = [stop for stop in self.stops if stop > self.value]
        room = COARSE_STOPS - 1
        few_below = min(len(below), max(room // 2, room - len(above)))
        return (
            *_spaced(below[::-1], few_below)[::-1],
            self.value,
            *_spaced(above, room - few_below),
        )


def _spaced(stops: Sequence[float], count: int) -> list[float]:
    """Return so many stops, or all of fewer, evenly spaced; the last is the last."""
    count = min(count, len(stops))
    return [stops[(index + 1) * len(stops) // count - 1] for index in range(count)]


def knobs_of(params: Params, cluster: ClusterSpec) -> tuple[Knob, ...]:
    """Return what can be changed of a configuration: less where its model is a user's class."""
    assert params.trainer.fit is not None, "checked before a step is captured"
    init, batch = params.trainer.init, params.trainer.fit.train_dataloader.batch_size
    model = known_config(init.model.dump(), "trainer.init.model")
    systems = init.backend.cluster_config.num_csx
    found = [
        Knob(
            SYSTEMS, "Systems", (NUM_CSX,), systems, _with(systems, _counts(cluster.machine)),
            1, cluster.machine.systems or MOST_SYSTEMS,
        ),
        *_switch(cluster.machine.system),
        Knob("batch", "Batch", (BATCH_SIZE,), batch, _times(batch, _OCTAVES), 1, _MOST_SAMPLES,
             "samples"),
    ]  # fmt: skip
    if model is not None:
        found += _of_model(params, model)
    if init.sparsity is None:
        found.append(
            Knob(DENSITY, "Density", (SPARSITY,), 1.0, _DENSITIES, 0.01, 1, "of weights",
                 is_whole=False)
        )  # fmt: skip
    return (*found, *knobs_of_machine(cluster.machine))


def _switch(system: WaferSpec) -> Iterator[Knob]:
    """Yield the switch between kinds of systems; none for one that is not as published."""
    numbers = {name: number for number, name in KINDS.items()}
    if system == SYSTEMS_BY_NAME[system.name]:
        stops, names = tuple(KINDS), tuple(KINDS.values())
        yield Knob(
            KIND, "System", (SYSTEM,), numbers[system.name], stops, 1, len(stops), names=names
        )


def _of_model(params: Params, model: ModelConfig) -> Iterator[Knob]:
    """Yield the knobs of a registered model that reads tokens, or has a number of layers."""
    assert params.trainer.fit is not None
    loader = params.trainer.fit.train_dataloader.dump()
    if model.language_sizes is not None:
        length = loader.get("max_sequence_length") or model.language_sizes.max_length
        yield Knob(
            SEQUENCE, "Sequence", (SEQUENCE_LENGTH,), length, _times(length, _NEAR_OCTAVES),
            1, _MOST_TOKENS, "tokens",
        )  # fmt: skip
    layers, unit = getattr(model, "num_hidden_layers", None), model.layers_of_unit
    if isinstance(layers, int):
        stops = _times(layers // unit, _NEAR_OCTAVES)
        yield Knob(
            DEPTH, "Layers", (LAYERS,), layers, _with(layers, [unit * stop for stop in stops]),
            1, _MOST_LAYERS,
        )  # fmt: skip


def knobs_of_machine(machine: MachineSpec) -> tuple[Knob, ...]:
    """Return what can be changed of a machine with its kind of systems."""
    system, memoryx, swarmx = machine.system, machine.memoryx, machine.swarmx
    fan_outs = range(2, swarmx.node_ports)
    link = min(
        swarmx.link_bandwidth_bytes_per_s,
        memoryx.bandwidth_bytes_per_s,
        system.io_bandwidth_bytes_per_s,
    )
    memory = memoryx.memory_bandwidth_bytes_per_s
    return (
        Knob("clock", "Clock", (CLOCK,), system.clock_hz, _times(system.clock_hz, _TENTHS),
             1, _MOST_RATE, "GHz", 1e9),
        Knob("fan_out", "Fan-out", (FAN_OUT,), swarmx.fan_out, _with(swarmx.fan_out, fan_outs),
             2, 1024, "per switch"),
        Knob("links", "Links", LINKS, link, _times(link, _HALF_OCTAVES), 1, _MOST_RATE,
             "GB/s each way", 1e9),
        Knob("memory", "MemoryX memory", (MEMORY,), memory, _times(memory, _HALF_OCTAVES),
             1, _MOST_RATE, "GB/s", 1e9),
    )  # fmt: skip


def _counts(machine: MachineSpec) -> list[int]:
    return [count for count in _COUNTS if machine.systems is None or count <= machine.systems]


def _times(value: int, factors: Sequence[float]) -> tuple[float, ...]:
    """Return a value times each factor, as whole numbers of a few digits."""
    return _with(value, [max(1, _short(value * factor)) for factor in factors])


def _short(value: float) -> int:
    """Return a value with three digits, or all of them where it is small or a power of two."""
    whole = round(value)
    return whole if whole == value and whole < 10**6 else round(float(f"{value:.3g}"))


def _with(value: float, stops: Sequence[float]) -> tuple[float, ...]:
    return tuple(sorted({value, *stops}))


def at_rest(knobs: Sequence[Knob]) -> Mapping[str, float]:
    """Return the value of every knob that was not moved."""
    return {knob.name: knob.value for knob in knobs}
