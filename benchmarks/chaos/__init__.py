"""Train under faults of all kinds, and compare with the training that nothing happened to."""
