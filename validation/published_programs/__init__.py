"""Cost models of published programs that only the validation replays."""
