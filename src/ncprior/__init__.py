"""Neural regression that knows what it does not know, and says what to label next."""

__version__ = "0.1.0"
