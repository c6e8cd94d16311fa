"""Measure how fast this program itself is; one command per question, results as JSON."""
