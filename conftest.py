"""Leaves out the doctests of what is not installed."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("torch") else ["src/ncprior/torch"]
