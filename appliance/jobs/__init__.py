"""Cluster jobs: what a program asks of the cluster, as users list, queue and cancel it.

``job`` is what a job is, and ``queue`` the rule that says which one starts: both without I/O.
``store`` keeps jobs in files that all runs of a user share, ``owner`` knows the process that runs
one, and ``client`` leads the jobs of a running program through the rule and the store.
"""
