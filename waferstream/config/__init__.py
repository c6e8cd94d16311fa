"""params.yaml, validated and resolved: plain data for whoever builds the run."""
