"""What a step returns or writes, beyond what one micro-batch can compute by itself."""
