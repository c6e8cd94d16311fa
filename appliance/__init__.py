"""The cluster as one machine: coordinator, input workers, local and Ray clusters."""
