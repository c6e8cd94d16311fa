"""Fixtures of tests of the vendor's names."""

from tests.unit.cstorch.conftest import backend

__all__ = ["backend"]
