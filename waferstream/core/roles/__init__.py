"""Roles and their jobs: installation, protocol, verification, recorded activities."""
