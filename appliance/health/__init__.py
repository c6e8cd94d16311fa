"""Health of running processes: pulses, the diagnosis over them, and the watch that acts on it."""
