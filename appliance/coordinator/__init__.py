"""The coordinator, between the cluster that a user controls and the roles that it reaches."""
