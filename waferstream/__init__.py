"""The command: configuration, training runs, simulations, scaling experiments and reports."""
