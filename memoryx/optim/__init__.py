"""Optimizer rules on fp32 masters, and gradient clipping.

To add an optimizer, write its class in one of the modules imported here and decorate it with
``register``: the class of ``cstorch.optim``, its entry in params.yaml and its cost follow from it.
"""

from memoryx.optim import adaptive_rules, fused_rules, plain_rules, step_rules

__all__ = ["adaptive_rules", "fused_rules", "plain_rules", "step_rules"]
