"""Small runs of the vendor's Model Zoo (``python -m scripts.model_zoo --help``)."""
