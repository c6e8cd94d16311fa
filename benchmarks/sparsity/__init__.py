"""What non-zeros save: bytes on links and in memory, time of steps, emulated time."""
