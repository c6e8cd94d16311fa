"""Systems to compare the wafer cluster with: GPU clusters and inference on wafer regions."""
