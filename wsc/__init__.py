"""What all roles share: compiler, checkpoint files, numerics, plain data and rules, the host."""
