"""Models, data pipelines, configuration, trainer and command line."""
