"""Graph passes over a captured step."""
