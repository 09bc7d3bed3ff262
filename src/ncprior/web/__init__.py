"""The page of label campaigns, and their JSON interface."""
