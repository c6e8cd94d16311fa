"""Systems to compare the wafer cluster with: GPU clusters."""
