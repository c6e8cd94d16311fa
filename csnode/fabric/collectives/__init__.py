"""Broadcast, reduce and all-reduce on lines and grids of PEs.

``add_*``, ``route_*`` and ``do_*`` extend a program; the functions of ``programs`` build a program
that is nothing but one collective.
"""
