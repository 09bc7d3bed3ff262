"""The command ``ncprior``."""
