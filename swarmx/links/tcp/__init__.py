"""The link between hosts: TCP under TLS."""
