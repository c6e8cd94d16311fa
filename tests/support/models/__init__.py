"""Small models, and the data that they are trained on."""
