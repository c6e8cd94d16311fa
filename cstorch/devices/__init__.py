"""Devices of a program: CSX, and CPU and GPU, on which steps run as plain PyTorch."""
