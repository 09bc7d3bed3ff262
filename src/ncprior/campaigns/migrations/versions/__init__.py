"""One file for each change, which names the one before it."""
