"""A second user of the host, as whom only root can start a process."""

import os

import pytest

NOBODY = 65534

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
