"""What input workers do: the user's loader, its batches by step, its random numbers, labels."""
