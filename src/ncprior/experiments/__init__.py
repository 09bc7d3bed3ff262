"""Experiments on people's own tables and, in `paper`, those of the paper; and the records that they leave."""
