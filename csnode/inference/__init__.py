"""Tokens of many sequences through a decoder whose weights and KV cache stay."""
