"""Report on predictions: errors and goals as text, data, Markdown and picture."""
