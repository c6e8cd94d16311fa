"""Plain data and rules that every room speaks: programs, messages, the reduce order, errors."""
