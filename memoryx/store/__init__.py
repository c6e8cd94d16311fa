"""What a weight server holds, and how it outlives updates, losses and the program itself."""
