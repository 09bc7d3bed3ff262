"""What the words and numbers of results mean, each in one line: for ``--explain`` and for pages."""

TERMS = {
    "typical error": "the root mean square error (RMSE), in the unit of the target; about two in three are smaller",
    "interval": "from lower to upper: the true value lies in it with the probability that --level gives",
    "coverage": "the share of true values that did lie in their intervals; it should be the level itself",
    "NLPD": "negative log predictive density: one number for exact and honest predictions together; lower is better",
    "CRPS": "like the error, but of the whole prediction; in the unit of the target, and lower is better",
    "uncertainty": "how far the model's own idea may be off, as a standard deviation; more labels lower it",
    "noise": "how much true values scatter for the same inputs; more labels do not lower it",
    "information gain": "what a label of this row is expected to teach the model, in nats",
    "detection": "how often a row unlike the training rows is more uncertain than one like them; 0.5 is chance",
    "shuffled and far rows": "rows of the table with each column shuffled, or with one number moved by 4 std",
    "rank correlation": "whether errors are larger where the model is less sure: 1 always, 0 no relation (Spearman)",
    "risk-coverage": "the error of the rows that are kept if the most uncertain are refused; its area is the mean",
    "held-out rows": "rows that were kept from training, to try the model on",
    "boosted trees": "what most people would use instead (scikit-learn's HistGradientBoosting), for comparison",
    "familiarity": "from 1, as the training rows, to 0, unlike any of them",
}
_HEADINGS = {"RMSE": "typical error"}


def explanation(heading: str) -> str:
    """What the heading of a column means; nothing if it needs no words.

    >>> explanation("NLPD (nats)").partition(":")[0]
    'negative log predictive density'
    """
    found = next((term for word, term in _HEADINGS.items() if word in heading), None)
    found = found or next((term for term in TERMS if term.lower() in heading.lower()), None)
    return TERMS[found] if found else ""
