"""T5 and the transformer of 2017."""
