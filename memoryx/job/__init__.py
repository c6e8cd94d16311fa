"""The parts of a weight server's job: weights out, gradients in, and when an update may run."""
