"""Links that carry messages between roles: shared memory on a host, TCP or gRPC between hosts."""
