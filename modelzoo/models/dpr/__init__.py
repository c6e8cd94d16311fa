"""DPR: two encoders that find passages for questions."""
