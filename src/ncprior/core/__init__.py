"""The paper: distributions, networks, objectives, methods, training and active learning; it knows nothing of tables."""
