"""The estimator for people's own tables: an ensemble that is stopped, calibrated and weighed by held-out rows."""
