"""What a run tells people: progress lines, event files, pictures and summaries."""
