"""Claims of Figure 4 and Section 5.2: active learning on flight delays."""

import numpy as np

from ncprior.core.methods import title
from ncprior.experiments.records import Records
from ncprior.experiments.runs import MethodFiles
from ncprior.report.claims.final import METRICS, Final, final, lower_than, present
from ncprior.report.claims.toy import DIVERGED, NCP, PLAIN, best_test_nlpd
from ncprior.report.claims.verdicts import Claim, claim, lower, median

SIMILAR = 0.25
"""NLPDs on visible labels are similar if their difference is below this share of the difference on the test rows."""


def flights_claims(records: Records) -> list[Claim]:
    """The claims about the methods that were run."""
    found = final(records)
    rest = ("odc+ncp", *PLAIN)
    claims = [
        *lower_than(found, "The NCP models have lower test NLPD than the baselines.", NCP, PLAIN, "test_nlpd"),
        *lower_than(found, "BBB+NCP has the lowest test RMSE.", ("bbb+ncp",), rest, "test_rmse"),
        *lower_than(found, "BBB+NCP has lower test RMSE than BBB.", ("bbb+ncp",), ("bbb",), "test_rmse"),
        *lower_than(found, "ODC+NCP has lower test RMSE than Det.", ("odc+ncp",), ("det",), "test_rmse"),
    ]
    for metric, label in METRICS.items():
        text = f"All uncertainty-based models outperform Det ({label})."
        claims += lower_than(found, text, (*NCP, "bbb"), ("det",), metric)
    claims += [_diverges(records, found, name) for name in present(found, PLAIN)]
    if {"bbb", "bbb+ncp"} <= found.keys():
        claims.append(_similar_on_visible_labels(found))
    return claims + lower_than(
        found,
        "Not a claim of the paper: labels chosen by information gain beat random ones (BBB+NCP, RMSE).",
        ("bbb+ncp",),
        ("bbb+ncp@random",),
        "test_rmse",
    )


def _diverges(records: Records, found: Final, name: str) -> Claim:
    best, _ = best_test_nlpd(MethodFiles(records, name).metrics())
    end = found[name]["test_nlpd"]
    text = f"The test NLPD of {title(name)} diverges (ends a nat above its best)."
    return claim(text, f"medians: lowest {median(best)}, at the end {median(end)}", [lower(best + DIVERGED, end)])


def _similar_on_visible_labels(found: Final) -> Claim:
    with_ncp, without = found["bbb+ncp"], found["bbb"]
    visible = np.abs(without["train_nlpd"] - with_ncp["train_nlpd"])
    test = without["test_nlpd"] - with_ncp["test_nlpd"]
    text = (
        "BBB and BBB+NCP have similar NLPD on the visible labels, but BBB+NCP generalises better (the "
        "difference on the visible labels is less than a quarter of BBB+NCP's lead on the test rows)."
    )
    # A seed that failed with either of them cannot be compared.
    numbers = f"median differences in nats: visible {median(visible)}, test {median(test)}"
    return claim(text, numbers, [~np.isnan(test) & lower(visible, SIMILAR * test)])
