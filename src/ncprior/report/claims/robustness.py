"""Claims about robustness to input noise: Figure 5 and Section 5.3 on flights, appendix C on the toy data."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ncprior.core.methods import title
from ncprior.experiments.paper import robustness
from ncprior.experiments.paper.robustness import Setting, Swept
from ncprior.experiments.records import Records
from ncprior.report.claims.final import METRICS
from ncprior.report.claims.toy import rank_correlation
from ncprior.report.claims.verdicts import Claim, claim, lower, median, rounded

BEST_BELOW = 0.6
"""Below this variance of the noise, BBB+NCP is said to have the best NLPD on flights (Section 5.3)."""
THRESHOLDS = {"bbb+ncp": 0.3, "odc+ncp": 0.1}
"""From these variances of the noise on, NCP is said to perform well on the 1-dimensional data (Section 5.3)."""


class Pair(NamedTuple):
    """Two methods, the first of which should have the lower value of a metric. The first has input noise."""

    lower: str
    higher: str
    metric: str


def flights_robustness_claims(records: Records) -> list[Claim]:
    """The claims of Figure 5 and Section 5.3."""
    swept = robustness.sweep(records)
    ncp = "bbb+ncp"
    claims = [
        *_in_all(
            swept,
            "NCP improves over the baselines in all settings (BBB+NCP over BBB and ODC+NCP over Det, RMSE and NLPD).",
            [Pair(a, b, metric) for a, b in ((ncp, "bbb"), ("odc+ncp", "det")) for metric in METRICS],
        ),
        *_in_all(swept, "NCP improves the RMSE of BBB for all tested noise sizes.", [Pair(ncp, "bbb", "test_rmse")]),
        *_in_all(
            swept,
            f"BBB+NCP has the best NLPD for all noise sizes below {BEST_BELOW} (lower than BBB, Det, and ODC+NCP with "
            "the same noise).",
            [Pair(ncp, other, "test_nlpd") for other in ("bbb", "det", "odc+ncp")],
            lambda setting: setting.variance < BEST_BELOW,
        ),
    ]
    if "odc+ncp" in swept:
        claims.append(_trade(swept))
    return claims


def toy_robustness_claims(records: Records) -> list[Claim]:
    """The claims of appendix C: NCP works with Gaussian and uniform noise from a small variance on."""
    swept = robustness.sweep(records)
    claims = []
    for name, least in THRESHOLDS.items():
        for noise, label in (("gaussian", "Gaussian"), ("uniform", "uniform")):
            text = (
                f"{title(name)} performs well with {label} noise of variance {least} and above (RMSE and NLPD lower "
                "than BBB and Det)."
            )
            pairs = [Pair(name, other, metric) for other in ("bbb", "det") for metric in METRICS]
            claims += _in_all(swept, text, pairs, partial(_at_least, noise=noise, variance=least))
    return claims


def _at_least(setting: Setting, noise: str, variance: float) -> bool:
    # Variances are multiples of 0.1, so half a step avoids comparing rounded numbers for equality.
    return setting.noise == noise and setting.variance > variance - 0.05


def _in_all(
    swept: dict[str, Swept], text: str, pairs: Sequence[Pair], chosen: Callable[[Setting], bool] = lambda _: True
) -> list[Claim]:
    """The claim that the first method of each pair is lower than the second in all of the chosen settings.

    A method without input noise is the same in every setting.
    """
    if not {name for pair in pairs for name in pair[:2]} <= swept.keys():
        return []
    parts, numbers = [], []
    for a, b, metric in pairs:
        settings = [setting for setting in swept[a] if chosen(setting)]
        others = [swept[b][robustness.NO_NOISE if robustness.NO_NOISE in swept[b] else one] for one in settings]
        parts += [lower(swept[a][one][metric], other[metric]) for one, other in zip(settings, others, strict=True)]
        left, right = ([of[metric] for of in side] for side in ([swept[a][one] for one in settings], others))
        numbers.append(f"{METRICS[metric]} {title(a)} {_range(left)} against {title(b)} {_range(right)}")
    return [claim(text, f"medians: {', '.join(numbers)}", parts)]


def _trade(swept: dict[str, Swept]) -> Claim:
    """The claim that with larger noise the NLPD of ODC+NCP rises and its RMSE falls, for each kind of noise."""
    found: dict[str, list[np.ndarray]] = {metric: [] for metric in METRICS}
    for noise in dict.fromkeys(setting.noise for setting in swept["odc+ncp"]):
        sizes = sorted(setting for setting in swept["odc+ncp"] if setting.noise == noise)
        variances = np.array([setting.variance for setting in sizes])
        for metric in METRICS:
            values = np.stack([swept["odc+ncp"][setting][metric] for setting in sizes], axis=1)  # [seeds, sizes]
            found[metric].append(
                np.array([np.nan if np.isnan(row).any() else rank_correlation(variances, row) for row in values])
            )
    parts = [*(lower(-one, 0.0) for one in found["test_nlpd"]), *(lower(one, 0.0) for one in found["test_rmse"])]
    numbers = ", ".join(f"{label} {median(np.concatenate(found[metric]))}" for metric, label in METRICS.items())
    text = (
        "ODC+NCP has a trade-off: smaller noise gives better NLPD but worse RMSE (for each seed, the rank correlation "
        "of the NLPD with the size of the noise is above 0, and that of the RMSE below 0)."
    )
    return claim(text, f"median rank correlations: {numbers}", parts)


def _range(settings: Sequence[np.ndarray]) -> str:
    """The lowest and the highest median over the seeds among the settings, and how many runs failed."""
    runs = np.concatenate(settings)
    medians = [np.median(values[~np.isnan(values)]) for values in settings if not np.isnan(values).all()]
    shown = "none" if not medians else rounded(min(medians))
    if medians and max(medians) > min(medians):
        shown += f" to {rounded(max(medians))}"
    failed = int(np.isnan(runs).sum())
    return f"{shown} ({failed} of {len(runs)} runs failed)" if failed else shown
