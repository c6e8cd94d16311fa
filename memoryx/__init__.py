"""MemoryX: the weight servers. Masters and optimizer state live here and nowhere else."""
