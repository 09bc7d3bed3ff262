"""The paper's claims against measured numbers: each holds, does not hold, or is unclear, by one stated rule."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from ncprior.experiments import robustness
from ncprior.experiments.records import Records
from ncprior.methods import title

RULE = (
    "A claim that one number is lower than another is checked seed by seed (the same seed begins with the same "
    "labels). It holds if it is true of at least 80% of the seeds, does not hold if it is true of at most 20%, and is "
    "unclear in between or with fewer than three seeds. A claim with several parts holds if all of them do, and does "
    "not hold if one does not."
)

Verdict = Literal["holds", "does not hold", "unclear"]


class Claim(NamedTuple):
    """What the paper says, what was measured, and whether they agree."""

    text: str
    numbers: str
    verdict: Verdict


def judge(lower: np.ndarray, higher: np.ndarray) -> Verdict:
    """Whether the first numbers are lower than the second ones, seed by seed, by `RULE`."""
    whole = ~(np.isnan(lower) | np.isnan(higher))
    if whole.sum() < 3:
        return "unclear"
    share = np.mean(lower[whole] < higher[whole])
    return "holds" if share >= 0.8 else "does not hold" if share <= 0.2 else "unclear"


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a claim that has several parts."""
    parts = set(verdicts)
    return "does not hold" if "does not hold" in parts else "unclear" if "unclear" in parts or not parts else "holds"


def toy_claims(records: Records) -> list[Claim]:
    """The claims of Figure 3 and Section 5.1."""
    final, first = _final(records), _final(records, last=False)
    claims = []
    for metric, label in (("test_rmse", "RMSE"), ("test_nlpd", "NLPD")):
        ncp = _present(records, ("bbb+ncp", "odc+ncp"))
        if ncp:
            verdict = all_of(judge(final[name][metric], first[name][metric]) for name in ncp)
            numbers = "; ".join(
                f"{title(name)} {_median(first[name][metric])} to {_median(final[name][metric])}" for name in ncp
            )
            claims.append(Claim(f"The test {label} of the NCP models decreases during the run.", numbers, verdict))
    for metric, label in (("test_rmse", "RMSE"), ("test_nlpd", "NLPD")):
        claims += _lower(
            records, final, ("bbb+ncp", "odc+ncp"), ("bbb",), metric, f"Models with NCP outperform BBB ({label})."
        )
        claims += _lower(records, final, ("bbb",), ("det",), metric, f"BBB in turn outperforms Det ({label}).")
    return claims


def flights_claims(records: Records) -> list[Claim]:
    """The claims of Figure 4 and Section 5.2."""
    final = _final(records)
    ncp, plain = ("bbb+ncp", "odc+ncp"), ("bbb", "det")
    claims = [
        *_lower(records, final, ncp, plain, "test_nlpd", "The NCP models have lower test NLPD than the baselines."),
        *_lower(records, final, ("bbb+ncp",), ("odc+ncp", *plain), "test_rmse", "BBB+NCP has the lowest test RMSE."),
        *_lower(records, final, ("bbb+ncp",), ("bbb",), "test_rmse", "BBB+NCP has lower test RMSE than BBB."),
        *_lower(records, final, ("odc+ncp",), ("det",), "test_rmse", "ODC+NCP has lower test RMSE than Det."),
        *_lower(
            records, final, (*ncp, "bbb"), ("det",), "test_rmse", "All uncertainty-based models outperform Det (RMSE)."
        ),
    ]
    for name in _present(records, plain):
        columns = records.read_table(f"metrics/{name}.parquet")
        best = np.array(
            [np.nanmin(columns["test_nlpd"][columns["seed"] == seed]) for seed in np.unique(columns["seed"])]
        )
        numbers = f"lowest {_median(best)}, at the end {_median(final[name]['test_nlpd'])}"
        # One nat above its best is a density 2.7 times lower.
        verdict = judge(best + 1, final[name]["test_nlpd"])
        claims.append(Claim(f"The test NLPD of {title(name)} diverges (ends a nat above its best).", numbers, verdict))
    claims += _lower(
        records, final, ("bbb+ncp",), ("bbb+ncp@random",), "test_rmse",
        "Not a claim of the paper: labels chosen by information gain beat random ones (BBB+NCP, RMSE).",
    )  # fmt: skip
    return claims


def robustness_claims(records: Records) -> list[Claim]:
    """The claims of Figure 5, Section 5.3 and appendix C."""
    found = robustness.collect(records)
    if not {"bbb", "bbb+ncp"} <= found.keys():
        return []
    base = {metric: found["bbb"]["", 0.0][metric] for metric in ("test_rmse", "test_nlpd")}
    claims = []
    for name, metric, most, text in (
        ("bbb+ncp", "test_rmse", 1.0, "NCP improves the RMSE of BBB for all tested noise sizes."),
        ("bbb+ncp", "test_nlpd", 0.6, "BBB+NCP has better NLPD than BBB for all noise sizes below 0.6."),
        ("odc+ncp", "test_nlpd", 1.0, "ODC+NCP has better NLPD than BBB for all tested noise sizes."),
    ):
        means = [value[metric]["mean"] for (_, size), value in found[name].items() if size < most or most == 1.0]
        below = np.mean(np.array(means, float) < base[metric]["mean"])
        verdict: Verdict = "holds" if below == 1 else "does not hold" if below <= 0.5 else "unclear"
        numbers = (
            f"{below:.0%} of {len(means)} settings below BBB's mean {base[metric]['mean']:.3g}; "
            f"means from {min(means):.3g} to {max(means):.3g}"
        )
        claims.append(
            Claim(
                f"{text} (Means over seeds; holds if true of every setting, not if of half or fewer.)", numbers, verdict
            )
        )
    return claims


def regression_claims(records: Records) -> list[Claim]:
    """The claims of Table 1, and what boosted trees on the same split say about them."""
    results = records.read_json("results.json")
    claims = []
    trees = results["baselines"].get("boosting")
    for name, metrics in results["methods"].items():
        rmse, nlpd = metrics["test_rmse"]["mean"], metrics["test_nlpd"]["mean"]
        if rmse is None or trees is None:
            continue
        better = [rmse <= trees["test_rmse"], nlpd <= trees["test_nlpd"]]
        verdict: Verdict = "holds" if all(better) else "unclear" if any(better) else "does not hold"
        numbers = f"RMSE {rmse:.2f} against {trees['test_rmse']:.2f}, NLPD {nlpd:.3f} against {trees['test_nlpd']:.3f}"
        text = f"{title(name)} is at or below boosted trees on the same split (one run; unclear if in one of two)."
        claims.append(Claim(text, numbers, verdict))
    return claims


def _final(records: Records, *, last: bool = True) -> dict[str, dict[str, np.ndarray]]:
    """Every metric of every seed at the last (or first) evaluation, by method."""
    found = {}
    for name in records.config["methods"]:
        columns = records.read_table(f"metrics/{name}.parquet")
        epoch = columns["epoch"].max() if last else columns["epoch"].min()
        found[name] = {key: value[columns["epoch"] == epoch] for key, value in columns.items()}
    return found


def _present(records: Records, names: Iterable[str]) -> list[str]:
    return [name for name in names if name in records.config["methods"]]


def _lower(
    records: Records,
    final: dict[str, dict[str, np.ndarray]],
    lower: tuple[str, ...],
    higher: tuple[str, ...],
    metric: str,
    text: str,
) -> list[Claim]:
    """The claim that all of some methods are lower than all of others, if they were run."""
    left, right = _present(records, lower), _present(records, higher)
    if len(left) < len(lower) or len(right) < len(higher):
        return []
    verdict = all_of(judge(final[a][metric], final[b][metric]) for a in left for b in right)
    numbers = ", ".join(f"{title(name)} {_median(final[name][metric])}" for name in (*left, *right))
    return [Claim(text, f"medians: {numbers}", verdict)]


def _median(values: np.ndarray) -> str:
    finite = values[np.isfinite(values)]
    return f"{np.median(finite):.3g}" if len(finite) else "none"
