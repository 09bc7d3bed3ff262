"""Figures and report pages, drawn from records alone."""
