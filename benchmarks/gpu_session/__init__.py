"""Ten minutes on a host with a GPU: tests, bits, speed, memory and copies, in parts."""
