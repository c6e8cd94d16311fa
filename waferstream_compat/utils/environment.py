"""Environment variables that input workers get: those of the user's process."""

from __future__ import annotations

import os

appliance_environ = os.environ
"""Variables set here reach input workers that are started afterwards."""
