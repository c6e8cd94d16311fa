"""Roles of a cluster in this process, driven by hand or in any order."""
