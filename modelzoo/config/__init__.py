"""params.yaml and cluster.yaml, validated."""
