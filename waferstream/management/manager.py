"""What the management does for those who ask: each operation, and the schedule behind them."""
