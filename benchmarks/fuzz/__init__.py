"""Feed mutated inputs to every parser, and report what ends otherwise than in a typed error."""
