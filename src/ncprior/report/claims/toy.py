"""Claims of Figures 1 and 3 and Section 5.1: active learning on the 1-dimensional data.

Labels come from two bands of inputs; "off the bands" is everywhere else.
"""

from typing import NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

from ncprior.core.methods import title
from ncprior.experiments.paper.learning_curves import failed_runs
from ncprior.experiments.records import Records
from ncprior.experiments.runs import MethodFiles
from ncprior.report.claims.final import METRICS, final, lower_than, present
from ncprior.report.claims.verdicts import Claim, claim, lower, median

NCP, PLAIN = ("bbb+ncp", "odc+ncp"), ("bbb", "det")
"""The paper's models with NCP, and its baselines."""

_Z95 = 1.959964
"""Half the width of a normal's central 95% interval, in standard deviations."""
OVERCONFIDENT = 0.1
"""A model is overconfident if more than this share of the points is outside its 95% intervals: twice the nominal 5%."""
TOLD_APART = 0.75
"""Least probability that the uncertainty is larger at a point off the bands than at one in them: 0.5 is chance."""
FOLLOWS = 0.5
"""Least rank correlation of the predicted with the true noise."""
EARLY = 0.25
"""The first quarter of a run counts as early."""
DIVERGED = 1.0
"""A test NLPD has diverged if it ends this many nats above its best value: the density is then 2.7 times lower."""


def toy_claims(records: Records) -> list[Claim]:
    """The claims about the methods that were run."""
    found, first = final(records), final(records, last=False)
    claims = [*_figure1_claims(records)]
    ncp = present(found, NCP)
    for metric, label in METRICS.items():
        if ncp:
            numbers = "; ".join(
                f"{title(name)} {median(first[name][metric])} to {median(found[name][metric])}" for name in ncp
            )
            parts = [lower(found[name][metric], first[name][metric]) for name in ncp]
            claims.append(claim(f"The test {label} of the NCP models decreases during the run.", numbers, parts))
    for metric, label in METRICS.items():
        claims += lower_than(found, f"Models with NCP outperform BBB ({label}).", NCP, ("bbb",), metric)
        claims += lower_than(found, f"BBB in turn outperforms Det ({label}).", ("bbb",), ("det",), metric)
    return claims + [_overfits_early(records, name, found[name]) for name in present(found, PLAIN)]


class BandMeasures(NamedTuple):
    """How the predictions of a method differ off the bands and within them: arrays ``[seeds]``, NaN for failed seeds.

    Attributes:
        outside: Share of the points off the bands that are outside their 95% interval.
        uncertainty: Probability that a point off the bands has a larger uncertainty than one in them (AUROC).
        noise: The same for the noise.
        correlation: Rank correlation of the predicted noise with the true one, ``0.2 (x + 1)``, within the bands.
    """

    outside: np.ndarray
    uncertainty: np.ndarray
    noise: np.ndarray
    correlation: np.ndarray


def measure_bands(records: Records, name: str) -> BandMeasures:
    """The measures of a method, from its recorded predictions and the data."""
    data, curves = records.read_table("data.parquet"), records.read_table(f"curves/{name}.parquet")
    x, y, inside, failed = data["x"], data["y"], data["train"], failed_runs(records, name)
    rows = []
    for seed in np.unique(curves["seed"]):
        of_seed = curves["seed"] == seed
        mean, noise, uncertainty = (
            np.interp(x, curves["x"][of_seed], curves[key][of_seed]) for key in ("mean", "noise", "uncertainty")
        )
        std = np.hypot(noise, uncertainty)
        if seed in failed or not np.isfinite(mean + std).all():
            rows.append([np.nan] * 4)
            continue
        missed = np.abs(y - mean)[~inside] > _Z95 * std[~inside]
        detection = [roc_auc_score(~inside, part) for part in (uncertainty, noise)]
        rows.append([missed.mean(), *detection, rank_correlation(noise[inside], x[inside])])
    return BandMeasures(*np.array(rows, float).reshape(-1, 4).T)


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's rank correlation; 0 if one of the two is constant.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0, 100.0]))
    1.0
    """
    a, b = (_ranks(values) - (len(values) + 1) / 2 for values in (first, second))
    size = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / size) if size else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1 up; equal values have the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[place])


def _figure1_claims(records: Records) -> list[Claim]:
    names = records.config["methods"]
    found = {name: measure_bands(records, name) for name in present(dict.fromkeys(names), (*NCP, *PLAIN))}
    measured = f"more than {OVERCONFIDENT:.0%} of the test points off the bands are outside their 95% interval"
    claims = []
    for name in present(found, PLAIN):
        outside = found[name].outside
        text = f"Figure 1: {title(name)} is overconfident outside of the data distribution ({measured})."
        claims.append(claim(text, f"median share outside {median(outside)}", [lower(OVERCONFIDENT, outside)]))
    for name in present(found, NCP):
        of = found[name]
        text = (
            f"Figure 1: NCP prevents overconfidence in {title(name)} (less than {OVERCONFIDENT:.0%} of the test points "
            "off the bands are outside their 95% interval)."
        )
        claims.append(claim(text, f"median share outside {median(of.outside)}", [lower(of.outside, OVERCONFIDENT)]))
        # `lower` is False for failed seeds, so "a > b" is written as "1 - a < 1 - b".
        text = (
            f"Figure 1: {title(name)} tells uncertainty from noise: it is the uncertainty that is larger off the bands "
            f"(with a probability of at least {TOLD_APART} for a point off and a point within them, and a larger one "
            "than the noise)."
        )
        parts = [lower(1 - of.uncertainty, 1 - TOLD_APART), lower(1 - of.uncertainty, 1 - of.noise)]
        numbers = f"median probabilities: uncertainty {median(of.uncertainty)}, noise {median(of.noise)}"
        claims.append(claim(text, numbers, parts))
        text = (
            f"Figure 1: {title(name)} tells noise from uncertainty: within the bands its noise follows the true one "
            f"(rank correlation of at least {FOLLOWS})."
        )
        numbers = f"median correlation {median(of.correlation)}"
        claims.append(claim(text, numbers, [lower(-of.correlation, -FOLLOWS)]))
    return claims


def _overfits_early(records: Records, name: str, last: dict[str, np.ndarray]) -> Claim:
    columns = MethodFiles(records, name).metrics()
    end = columns["epoch"].max()
    best, when = best_test_nlpd(columns)
    early = lower(when, EARLY * end + 0.5)
    diverged = lower(best + DIVERGED, last["test_nlpd"])
    text = (
        f"{title(name)} overfits early, when few labels are visible (its best test NLPD is in the first quarter of the "
        "run, it ends a nat above it or more, and its train NLPD is lower than its test NLPD)."
    )
    numbers = (
        f"medians: best {median(best)} at epoch {median(when)} of {end:,}, "
        f"at the end {median(last['test_nlpd'])}, train {median(last['train_nlpd'])}"
    )
    # A seed that stopped has no train NLPD at the end. It counts as overfitted, as it has diverged.
    trained = lower(last["train_nlpd"], last["test_nlpd"]) | (np.isnan(last["test_nlpd"]) & ~np.isnan(best))
    return claim(text, numbers, [early & diverged & trained])


def best_test_nlpd(columns: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The lowest test NLPD of each seed and the epoch of it, from recorded metrics; NaN for a seed without any."""
    best, when = [], []
    for seed in np.unique(columns["seed"]):
        of_seed = (columns["seed"] == seed) & ~np.isnan(columns["test_nlpd"])
        values = columns["test_nlpd"][of_seed]
        best.append(values.min() if len(values) else np.nan)
        when.append(columns["epoch"][of_seed][values.argmin()] if len(values) else np.nan)
    return np.array(best, float), np.array(when, float)
