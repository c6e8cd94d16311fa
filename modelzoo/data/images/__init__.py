"""Images: how they are read, changed, masked and paired with text."""
