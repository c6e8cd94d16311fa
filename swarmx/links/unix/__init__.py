"""The link within a host: Unix sockets, with payloads in shared memory."""
