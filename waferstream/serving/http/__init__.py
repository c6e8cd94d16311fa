"""The HTTP service: what clients send and read. It alone imports HTTP."""
