"""The documentation site: hooks that make it, drawings of diagrams, a check of its pages."""
