"""Plain PyTorch models."""
