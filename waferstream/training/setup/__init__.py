"""What a run is made of: backend, flags, model, optimizer, traced steps and data loaders."""
