"""Where independent tasks run: in this process, or on a Ray cluster."""
