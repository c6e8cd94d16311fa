"""A referee: the first steps of a training beside a plain PyTorch loop on the whole batch.

``cstorch.Trainer(check=2)`` and ``waferstream check`` compare losses, weights and buffers after
each step. ``values`` holds what a step leaves, ``plain_loop`` the loop, ``verdict`` the comparison,
``rounding`` the measure of what rounding alone may change, and ``origin`` the search for the
first op that differs.
"""
