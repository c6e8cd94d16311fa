"""Performance questions, one script each; answers in results/ as JSON."""
