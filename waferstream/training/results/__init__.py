"""What a run leaves: its folder, its summary, pictures and report."""
