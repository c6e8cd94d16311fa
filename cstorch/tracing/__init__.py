"""Recording of a traced step: its update, its results and its closures."""
