"""How an admitted workflow starts, is asked to end, and is found again: processes, Ray jobs."""
