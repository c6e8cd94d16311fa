"""GPT and its relatives: decoders of text."""
