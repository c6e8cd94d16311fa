"""How fast tokens come: of the engine against others, and of the service over the engine."""
