"""What torch computes without a cluster, which results are compared with, and its functions as cases."""
