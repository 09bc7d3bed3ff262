"""Claims of Section 2 and appendix B about variants of BBB+NCP, on the 1-dimensional data."""

from ncprior.core.methods import title
from ncprior.experiments.records import Records
from ncprior.report.claims.final import Final, final
from ncprior.report.claims.verdicts import Claim, claim, lower, median, within

RMSE_TOLERANCE = 0.1
"""RMSEs count as equal if they differ by less than this share. For scale: that of BBB is 2.5 times BBB+NCP's."""
NLPD_TOLERANCE = 0.1
"""NLPDs count as equal if they differ by less than this many nats. For scale: BBB is 8 nats above BBB+NCP."""


def ablation_claims(records: Records) -> list[Claim]:
    """The claims about the variants that were run."""
    found = final(records)
    claims = []
    plain = found.get("bbb+ncp")
    if plain is not None and "bbb+ncp@reverse" in found:
        other = found["bbb+ncp@reverse"]
        text = (
            "The direction of the KL divergence makes no significant difference to BBB+NCP (test RMSE within "
            f"{RMSE_TOLERANCE:.0%} and test NLPD within {NLPD_TOLERANCE} nats of each other)."
        )
        parts = [
            within(other["test_rmse"], plain["test_rmse"], RMSE_TOLERANCE * plain["test_rmse"]),
            within(other["test_nlpd"], plain["test_nlpd"], NLPD_TOLERANCE),
        ]
        claims.append(claim(text, _compared(found, "bbb+ncp", "bbb+ncp@reverse"), parts))
    if plain is not None and "bbb+ncp@weight_prior" in found:
        other = found["bbb+ncp@weight_prior"]
        text = (
            "BBB+NCP needs no normal prior on its weights beside NCP (test RMSE and NLPD with both are not lower than "
            f"with NCP alone by more than {RMSE_TOLERANCE:.0%} and {NLPD_TOLERANCE} nats)."
        )
        parts = [
            lower((1 - RMSE_TOLERANCE) * plain["test_rmse"], other["test_rmse"]),
            lower(plain["test_nlpd"] - NLPD_TOLERANCE, other["test_nlpd"]),
        ]
        claims.append(claim(text, _compared(found, "bbb+ncp", "bbb+ncp@weight_prior"), parts))
    return claims


def _compared(found: Final, *names: str) -> str:
    medians = (f"{title(one)} {median(found[one]['test_rmse'])} and {median(found[one]['test_nlpd'])}" for one in names)
    return f"median RMSE and NLPD: {', '.join(medians)}"
