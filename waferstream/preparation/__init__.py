"""From texts to files of token sequences: what ``waferstream data preprocess`` does."""
