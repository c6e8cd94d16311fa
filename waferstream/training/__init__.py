"""Train and evaluate: the program that the command runs on cstorch."""
