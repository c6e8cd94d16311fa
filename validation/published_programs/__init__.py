"""Cost models of published programs, which only the validation uses."""
