"""DiT: diffusion of latents by a transformer."""
