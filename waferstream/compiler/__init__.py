"""From a captured step to a program: passes, segments, artifacts."""
