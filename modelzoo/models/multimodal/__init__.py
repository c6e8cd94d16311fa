"""LLaVA: language models that read images."""
