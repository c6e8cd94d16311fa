"""How well a run over several hosts does, on hosts in miniature."""
