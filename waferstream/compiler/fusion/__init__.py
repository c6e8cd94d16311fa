"""Kernels of segments through torch's inductor (``runtime.engine.kernels: compiled``).

``regions`` finds the ops of a kernel's text that can be fused, ``inductor`` makes loops of them in
C++, ``shared_object`` compiles these, ``kernel`` puts both together, ``cache`` keeps the results,
and ``program`` does it for the segments of a program.
"""
