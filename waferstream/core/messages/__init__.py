"""What roles send: messages, their numbers, the bytes of them, and sums of gradients."""
