"""The same programs with the vendor's CPU package and here (``--help`` tells the flags)."""
