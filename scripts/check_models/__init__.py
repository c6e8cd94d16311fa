"""Small models of several libraries beside plain PyTorch (``python -m scripts.check_models``)."""
