"""What looks on while a run goes: progress lines, event files, histories and listeners."""
