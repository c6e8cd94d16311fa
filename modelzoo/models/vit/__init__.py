"""ViT: encoders of images."""
