"""A program as data: segments, streams, schedule, kernels, and how its batch is cut."""
