"""Types of numbers that torch lacks or rounds in another way, and keyed random numbers."""
