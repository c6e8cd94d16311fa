"""Steps of other micro-batch sizes and depths, derived from few recordings."""
