"""Studies: a grid over any keys, told before it runs, a row for each of its points; searches."""
