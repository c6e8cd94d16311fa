"""Optimizer rules on fp32 masters, one per file."""
