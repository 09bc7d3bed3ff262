"""The experiments of the paper, and the records that they leave."""
