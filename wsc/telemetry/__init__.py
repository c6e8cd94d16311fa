"""What a run says about itself: rates, logs, pictures, summaries."""
