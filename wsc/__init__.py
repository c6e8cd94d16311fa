"""The shared vocabulary: core, timing, compiler, telemetry. Knows no room."""
