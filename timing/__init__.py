"""The emulated clock: hardware numbers, timelines, costs, attribution, traces."""
