"""A model as a service on wafers: where it lies, and how it stands load."""
