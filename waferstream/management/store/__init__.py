"""Events and the views that follow from them, in SQLite or PostgreSQL."""
