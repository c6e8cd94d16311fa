"""Plain data and rules that every role speaks: programs, messages, the reduce order, errors."""
