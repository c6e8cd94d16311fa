"""Models that answer: from a run, of Hugging Face, of llama.cpp; their tokens and texts."""
