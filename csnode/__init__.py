"""One CS system: activations in SRAM, kernels, and weights only while they pass through."""
