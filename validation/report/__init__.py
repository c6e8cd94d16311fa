"""Render the validation report as text, Markdown and a figure."""
