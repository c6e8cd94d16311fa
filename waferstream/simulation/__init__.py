"""``run.py --simulate``: what a run would take on the emulated machine, without running it."""
