"""SwarmX: the broadcast/reduce tree between MemoryX and the CS systems."""
