"""Simulator of the wafer's fabric: a grid of PEs as arrays, values and cycles together.

Writing a kernel takes four steps::

    fabric = Fabric(rows=8, columns=16)                  # spec and defects as wanted
    program = Program(fabric)
    x = program.array("x", 64, Dtype.FP16)               # the same address in every PE
    program.route(3, np.s_[:, 0], Port.RAMP, Port.EAST)  # colour 3: input and outputs per PE
    program.route(3, np.s_[:, 1:-1], Port.WEST, Port.EAST, Port.RAMP)
    program.route(3, np.s_[:, -1], Port.WEST, Port.RAMP)
    program.do(np.s_[:, 0], send(x.whole, 3))            # instructions of each PE, in order
    program.do(np.s_[:, 1:], receive(x.whole, 3))
    outcome = run(program, {"x": values})                # [rows, columns, length], or broadcast
    outcome.cycles, outcome.read("x")

``csnode.fabric.collectives`` adds routes and instructions of a collective to a program: a reduce by
any tree, broadcasts, rings, and a bus on which PEs send in turn. ``program.do`` appends; a PE runs
up to eight threads side by side (``thread=``), which wait for each other with ``Signal`` and
``Wait``. ``Vector`` and ``Gemv`` compute in memory.

``csnode.fabric.kernels`` has the kernels of a layer. Its weight-streaming GEMM (``streaming.py``)
uses most of the above. Hidden features lie along columns, tokens along rows of PEs. Activations
stay in memory as ``factors`` (one row of tokens per hidden index); the weights of an output are
multicast down the columns, value and index in one wavelet. ``Axpy(colour, factors, sums,
indexed=True)`` adds weight x row to the sums until a control wavelet ends the output. A ring on a
second thread (``collectives.Ring``, ``do_ring_sum``) then adds the partial sums of the row of PEs
and leaves them where the next layer expects its input, while the first thread continues with the
next output. In the backward pass ``Dots`` computes a gradient for each arriving weight
(``masked.py``).

Timing: an element consumed from the fabric in cycle t leaves for the ramp at t + 1. A ramp takes
``ramp_cycles``, a hop ``hop_cycles`` plus ``turn_cycles`` where it turns. Each op first takes
``vector_setup_cycles``. Streams move one wavelet per cycle; vector ops in memory run at the rates
of ``FabricSpec``. Everything else (pipelining, contention, back-pressure) follows.
"""
