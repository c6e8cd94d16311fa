"""Simulator that runs a program on all PEs of a fabric, cycle by cycle: values and time together.

``execution`` has the cores and the loop over cycles. A cycle is one step of the ``network``
(routers, with the ``queues`` compiled from the program's routes), then one step of the cores. Cores
read their instructions from an ``instruction_table``; ``threads`` hold the state of each thread, an
agenda of when they continue, and the signals between them. ``streams`` pass words between memory
and ramps; the ``datapath`` computes. ``activity`` keeps what they did, where it is asked.
"""
