"""The cluster of a program: the sizes it asks for, its execution, its records and files."""
