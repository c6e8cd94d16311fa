"""Where sections of params.yaml stand below ``trainer``, for whoever puts a key into one."""

from __future__ import annotations

KeyPath = tuple[str, ...]
"""Keys from ``trainer`` down; below ``callbacks`` and ``loggers`` comes the name of a class."""

INIT: KeyPath = ("init",)
BACKEND: KeyPath = (*INIT, "backend")
CLUSTER: KeyPath = (*BACKEND, "cluster_config")
PRECISION: KeyPath = (*INIT, "precision")
LOOP: KeyPath = (*INIT, "loop")
CHECKPOINT: KeyPath = (*INIT, "checkpoint")
LOGGING: KeyPath = (*INIT, "logging")
CALLBACKS: KeyPath = (*INIT, "callbacks")
LOGGERS: KeyPath = (*INIT, "loggers")
GLOBAL_FLAGS: KeyPath = (*CALLBACKS, "GlobalFlags")
