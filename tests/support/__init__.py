"""Fixtures, builders and stand-ins that several tests share."""
