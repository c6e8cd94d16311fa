"""Numbers of the emulated machine, each with status and source (see ``sourced``)."""

from waferstream.machine.hardware.activations import ActivationSpec
from waferstream.machine.hardware.fabric import WSE2, WSE3, WSE3_SIMULATOR, FabricSpec
from waferstream.machine.hardware.hosts import HostSpec
from waferstream.machine.hardware.inputs import InputSpec
from waferstream.machine.hardware.machine import EVEN, JitterSpec, MachineSpec
from waferstream.machine.hardware.power import PowerSpec
from waferstream.machine.hardware.sourced import override
from waferstream.machine.hardware.streams import MemoryXSpec, SwarmXSpec
from waferstream.machine.hardware.wafer import CS2, CS3, DefectSpec, WaferSpec

__all__ = [
    "CS2",
    "CS3",
    "EVEN",
    "WSE2",
    "WSE3",
    "WSE3_SIMULATOR",
    "ActivationSpec",
    "DefectSpec",
    "FabricSpec",
    "HostSpec",
    "InputSpec",
    "JitterSpec",
    "MachineSpec",
    "MemoryXSpec",
    "PowerSpec",
    "SwarmXSpec",
    "WaferSpec",
    "override",
]
