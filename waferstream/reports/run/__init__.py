"""One run of training or evaluation: its summary, losses, pictures, event files and page."""
