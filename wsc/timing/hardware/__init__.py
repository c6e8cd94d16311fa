"""The emulated machine, every number with its source; see ``sourced`` for what a status means."""

from wsc.timing.hardware.defects import DefectSpec
from wsc.timing.hardware.fabric import WSE2, WSE3, WSE3_SIMULATOR, FabricSpec
from wsc.timing.hardware.inputs import UNKNOWN_LOADING, InputSpec, Loading
from wsc.timing.hardware.jitter import EVEN, JitterSpec
from wsc.timing.hardware.machine import MachineSpec
from wsc.timing.hardware.start_up import StartUpSpec
from wsc.timing.hardware.streams import MemoryXSpec, SwarmXSpec
from wsc.timing.hardware.wafer import CS2, CS3, WaferSpec

__all__ = [
    "CS2",
    "CS3",
    "EVEN",
    "UNKNOWN_LOADING",
    "WSE2",
    "WSE3",
    "WSE3_SIMULATOR",
    "DefectSpec",
    "FabricSpec",
    "InputSpec",
    "JitterSpec",
    "Loading",
    "MachineSpec",
    "MemoryXSpec",
    "StartUpSpec",
    "SwarmXSpec",
    "WaferSpec",
]
