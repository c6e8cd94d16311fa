"""Machines that consist of a wafer alone."""

from __future__ import annotations

from waferstream.machine.hardware import ActivationSpec, MachineSpec, WaferSpec


def alone(wafer: WaferSpec) -> MachineSpec:
    """Return the machine whose systems are such wafers, without activation servers."""
    return MachineSpec(system=wafer, activations=ActivationSpec(servers=0))
