"""Claims of the paper, compared with measured numbers. One file for each experiment; `verdicts` has the rule."""
