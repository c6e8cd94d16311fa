"""The version that artifacts and checkpoints are stamped with."""

VERSION = "0.2.0"
