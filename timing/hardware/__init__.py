"""Numbers of the emulated machine, each with status and source (see ``sourced``)."""

from timing.hardware.defects import DefectSpec
from timing.hardware.fabric import WSE2, WSE3, WSE3_SIMULATOR, FabricSpec
from timing.hardware.inputs import InputSpec
from timing.hardware.jitter import EVEN, JitterSpec
from timing.hardware.machine import MachineSpec
from timing.hardware.sourced import override
from timing.hardware.start_up import StartUpSpec
from timing.hardware.streams import MemoryXSpec, SwarmXSpec
from timing.hardware.wafer import CS2, CS3, WaferSpec

__all__ = [
    "CS2",
    "CS3",
    "EVEN",
    "WSE2",
    "WSE3",
    "WSE3_SIMULATOR",
    "DefectSpec",
    "FabricSpec",
    "InputSpec",
    "JitterSpec",
    "MachineSpec",
    "MemoryXSpec",
    "StartUpSpec",
    "SwarmXSpec",
    "WaferSpec",
    "override",
]
