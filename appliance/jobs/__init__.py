"""Cluster jobs: what a program asks of the cluster, as users list, queue and cancel it."""
