"""From one run of the user's step to a flat graph of aten ops."""
