"""Where the activations of a step lie on a wafer, and whether they fit."""

from wsc.timing.placement.liveness import Life, Liveness, Moment
from wsc.timing.placement.room import activation_bytes, largest_micro_batch

__all__ = ["Life", "Liveness", "Moment", "activation_bytes", "largest_micro_batch"]
