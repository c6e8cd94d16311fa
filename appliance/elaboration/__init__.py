"""From the size of a cluster to its roles, their rounds, and the memory that they need."""
