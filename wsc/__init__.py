"""What all roles share: plain data and rules, the compiler, checkpoint files."""
