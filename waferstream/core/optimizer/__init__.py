"""How a model is updated, as data: optimizer, loss scale, moving averages."""
