"""The link between hosts: gRPC streams."""
