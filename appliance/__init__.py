"""Control plane: cluster, coordinator, input workers, checkpoints, roles locally and on Ray."""
