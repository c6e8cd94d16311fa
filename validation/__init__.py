"""Predicted against published: every reference row, its error, and the errors per family."""
