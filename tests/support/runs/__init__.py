"""Small runs, as a user starts them."""
