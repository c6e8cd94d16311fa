"""Which role runs on which host, and what a host has for it: cores, memory, GPUs."""
