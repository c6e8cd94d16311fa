"""The sections of params.yaml: what each may contain, checked and typed."""
