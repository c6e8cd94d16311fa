"""DPO: a language model that learns from preferences."""
