"""The roles as Ray actors. The only place that imports ray."""
