"""What runs next: a pure decision over inventory and jobs, and the same on an emulated clock."""
