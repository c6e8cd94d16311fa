"""Hyper-parameters as functions of the step: learning-rate and weight-decay schedules.

To add one, write a class in one of the modules imported here and decorate it with ``register``:
its schedulers in ``cstorch.optim`` and its entry in params.yaml follow from it.

Names and arguments are those of the vendor's learning-rate schedulers (cerebras_pytorch 2.10,
``optim``), in the order of its constructors. A schedule is data: it has no counter and may be
evaluated at any step, in any order, in any process. ``step`` counts from 0 and is the number of
updates already done, as in ``torch.optim.lr_scheduler``, whose values these are where torch has the
same class.

In the formulas t is the step and T is ``total_iters``.
"""

from waferstream.core.hyper_schedules import composed, cycles, decays

__all__ = ["composed", "cycles", "decays"]
