"""Text and tokens for language models, and how they become samples."""
