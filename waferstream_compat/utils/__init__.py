"""Helpers of the vendor's client: files, loggers, rates, nested structures of tensors."""
