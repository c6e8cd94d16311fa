"""JSON schemas of params.yaml and cluster.yaml, and the list of their keys."""
