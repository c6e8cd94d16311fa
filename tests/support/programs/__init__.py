"""Programs of users, and the steps that are captured and compiled from them."""
