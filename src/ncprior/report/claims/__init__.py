"""The paper's claims against measured numbers: a file for each experiment, and one with the rule of all verdicts."""
