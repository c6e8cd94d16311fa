"""Who may ask, for how much, and what it cost: rules without I/O, over a store in SQLite."""
