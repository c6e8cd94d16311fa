"""What the management does for those who ask, and the turn that keeps its workflows going.

``access`` says who may do what, ``planning`` joins workflows with the schedule, ``launches`` with
their processes, ``manager`` has the operations.
"""
