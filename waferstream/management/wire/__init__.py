"""Operations as messages of gRPC."""
