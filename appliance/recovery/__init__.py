"""Recovery of a running cluster: lost roles are replaced, and no step is lost."""
