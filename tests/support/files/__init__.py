"""Files of checkpoints, datasets and events."""
