"""GPU clusters for comparison: training steps, scaling curves and inference.

A step is compute, exposed communication, pipeline bubble and optimizer (``step``); compute is
arithmetic at a sustained share of the peak plus memory traffic (``compute``), communication is
bytes over bandwidth plus latency (``communication``). Chips (``chips``), networks (``clusters``)
and software stacks (``software``) are tables of presets. Fitted on the calibration rows of the GPU
table only.
"""
