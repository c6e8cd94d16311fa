"""Links that carry messages between roles: process memory, shared memory, gRPC."""
