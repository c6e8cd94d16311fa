"""Optimizer rules on fp32 masters, and gradient clipping.

To add an optimizer, write its class in ``plain_rules.py`` and decorate it with ``register``: the
class of ``cstorch.optim``, its entry in params.yaml and its cost follow from it.
"""

from memoryx.optim import fused_rules, plain_rules

__all__ = ["fused_rules", "plain_rules"]
