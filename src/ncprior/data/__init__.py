"""Data sets: generated, installed from PyPI, or read from a user's files."""
