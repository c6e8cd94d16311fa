"""How users come in: operations over gRPC and HTTP, under tokens and TLS."""
