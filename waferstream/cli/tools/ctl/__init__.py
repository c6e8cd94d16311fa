"""``waferstream ctl``: what users and administrators ask of a management, a file for each noun.

Verbs, columns and messages are those of the vendor's ``csctl`` (ALCF user guides,
job-queuing-and-submission), with the reason and the expected start of what waits. Without an
address they are about the runs of this user.
"""
