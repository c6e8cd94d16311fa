"""Weights and configurations of transformers' models, to those of modelzoo and back."""
