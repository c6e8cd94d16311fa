"""What runs a program on all PEs of a fabric at once, cycle by cycle: values and time together.

``execution`` has the loop over cycles. A cycle is one step of the ``network`` (routers, whose
``queues`` are compiled from the program's routes and filled with ``wavelets``), then one of the
``cores``. These read their instructions from a ``table``; ``threads`` remember how far each of them
is, an ``agenda`` which go on when, and ``signals`` which wait for another. ``streams`` pass words
between memory and ``ramps``, the ``datapath`` computes (``vector``).
"""

from csnode.fabric.simulator.execution import Outcome, run

__all__ = ["Outcome", "run"]
