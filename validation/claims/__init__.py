"""Claims about the machine, replayed: see docs/claims.md."""
