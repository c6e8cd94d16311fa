"""Commands that ask a trained model, or plan what would answer: generate, serve, batch."""
