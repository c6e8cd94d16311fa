"""The workload of a run: its model and its data, by the names of plugins or by import paths."""
