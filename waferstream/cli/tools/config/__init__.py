"""``waferstream config``: params files, and the keys of all files."""
