"""``waferstream checkpoint``: commands on checkpoints, and conversions from and to others."""
