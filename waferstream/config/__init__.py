"""Read params.yaml into a validated, frozen configuration."""
