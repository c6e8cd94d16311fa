"""Emulated times and costs, machines, programs of the wafer simulator, and published rows."""
