"""Training of a loop that is not ours: a plain PyTorch loop hands in its steps, one by one.

``hand_over`` takes the model and torch's optimizer of such a loop. From then on a call of the model
in training computes nothing: it returns ``Deferred`` tensors, and what the loop does with them is
noted on a ``Tape``. ``optimizer.step()`` ends the tape, which is a step of the cluster: recorded
once for all steps that do the same, and run on the batch that the loop has read.
"""

from cstorch.handover.handover import Handover, hand_over

__all__ = ["Handover", "hand_over"]
