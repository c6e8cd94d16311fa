"""What carries messages: memory, shared memory, gRPC. One contract."""
