"""Claims of Table 1: regression on all training rows of the flight delays. Boosted trees are compared too."""

from itertools import combinations

from ncprior.core.methods import title
from ncprior.experiments.paper import regression
from ncprior.experiments.records import Records
from ncprior.report.claims.final import Final
from ncprior.report.claims.verdicts import Claim, claim, lower, median, within

EQUAL_RMSE = 0.01
"""RMSEs count as equal if they differ by less than this share; those in Table 1 differ by 0.5%."""
EQUAL_NLPD = 0.05
"""NLPDs count as equal if they differ by less than this many nats; those in Table 1 are equal in both digits."""
BEST_PUBLISHED = {"test_nlpd": 4.89, "test_rmse": 26.57}
"""Mondrian forests (Lakshminarayanan et al. 2016), the best published result in Table 1."""
_THREE = ("bbb", "bbb+ncp", "odc+ncp")


def regression_claims(records: Records) -> list[Claim]:
    """The claims about the methods that were run."""
    found = regression.final(records)
    claims = []
    if set(_THREE) <= found.keys():
        claims.append(_equal(found))
    for name in [name for name in _THREE if name in found]:
        of = found[name]
        text = (
            f"{title(name)} improves the published state of the art (Mondrian forests: NLPD 4.89, RMSE 26.57). The "
            "published numbers are on the authors' split, which is not this one, so the comparison is indirect."
        )
        parts = [lower(of[metric], best) for metric, best in BEST_PUBLISHED.items()]
        claims.append(claim(text, f"medians: {_both(found, name)}", parts))
    trees = records.read_json("results.json")["baselines"].get("boosting")
    for name, of in found.items():
        if trees is None:
            continue
        text = f"Not a claim of the paper: {title(name)} is below boosted trees on the same split (NLPD and RMSE)."
        numbers = f"medians: {_both(found, name)}; trees {trees['test_nlpd']:.3f} and {trees['test_rmse']:.2f}"
        claims.append(claim(text, numbers, [lower(of[metric], trees[metric]) for metric in BEST_PUBLISHED]))
    return claims


def _equal(found: Final) -> Claim:
    parts = []
    for a, b in combinations(_THREE, 2):
        first, second = found[a], found[b]
        parts += [
            within(first["test_nlpd"], second["test_nlpd"], EQUAL_NLPD),
            within(first["test_rmse"], second["test_rmse"], EQUAL_RMSE * second["test_rmse"]),
        ]
    text = (
        f"BBB, BBB+NCP and ODC+NCP are equal on all rows (test RMSE within {EQUAL_RMSE:.0%} and NLPD within "
        f"{EQUAL_NLPD} nats of each other)."
    )
    return claim(text, f"medians: {', '.join(_both(found, name) for name in _THREE)}", parts)


def _both(found: Final, name: str) -> str:
    return f"{title(name)} {median(found[name]['test_nlpd'], 4)} and {median(found[name]['test_rmse'], 4)}"
