"""A kernel on the simulated fabric, PE by PE and cycle by cycle: its trace, picture and page."""
