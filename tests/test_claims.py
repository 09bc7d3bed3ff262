import numpy as np
import pytest

from ncprior.experiments.records import Records
from ncprior.report.claims import all_of, flights_claims, judge, toy_claims


@pytest.mark.parametrize(
    ("lower", "higher", "verdict"),
    [
        ([1, 1, 1, 1, 1], [2, 2, 2, 2, 0], "holds"),
        ([1, 1, 1, 1, 1], [2, 2, 2, 0, 0], "unclear"),
        ([1, 1, 1, 1, 1], [2, 0, 0, 0, 0], "does not hold"),
        ([1, 1], [2, 2], "unclear"),
        ([1, 1, 1, np.nan], [2, 2, 2, 0], "holds"),
        ([1, 1, np.nan, 1], [2, 2, 2, np.nan], "unclear"),
    ],
)
def test_verdicts_by_the_share_of_seeds(lower, higher, verdict):
    assert judge(np.array(lower, float), np.array(higher, float)) == verdict


def test_a_claim_of_several_parts():
    assert all_of(["holds", "holds"]) == "holds"
    assert all_of(["holds", "unclear"]) == "unclear"
    assert all_of(["holds", "unclear", "does not hold"]) == "does not hold"
    assert all_of([]) == "unclear"


def write(records, name, first, last):
    """Metrics of a method at two evaluations; RMSE and NLPD are the same numbers."""
    values = np.concatenate([first, last])
    records.write_table(
        f"metrics/{name}.parquet",
        {
            "seed": np.tile(np.arange(len(first)), 2),
            "epoch": np.repeat([1, 2], len(first)),
            "test_rmse": values,
            "test_nlpd": values,
        },
    )


def verdicts(claims):
    return {claim.text: claim.verdict for claim in claims}


def test_claims_of_the_toy_experiment(tmp_path):
    names = ["bbb+ncp", "odc+ncp", "bbb", "det"]
    records = Records.create(tmp_path / "run", "toy", {"methods": names}, resume=False)
    write(records, "bbb+ncp", [2.0, 2, 2, 2], [1.0, 1, 1, 1])
    write(records, "odc+ncp", [2.0, 2, 2, 2], [1.0, 1, 1, 1])
    write(records, "bbb", [2.0, 2, 2, 2], [3.0, 3, 3, 3])
    write(records, "det", [2.0, 2, 2, 2], [4.0, 4, 2, 2])
    found = verdicts(toy_claims(records))
    assert found["The test RMSE of the NCP models decreases during the run."] == "holds"
    assert found["Models with NCP outperform BBB (NLPD)."] == "holds"
    assert found["BBB in turn outperforms Det (RMSE)."] == "unclear"


def test_claims_about_methods_that_were_not_run_are_left_out(tmp_path):
    records = Records.create(tmp_path / "run", "flights", {"methods": ["bbb+ncp", "bbb"]}, resume=False)
    write(records, "bbb+ncp", [2.0, 2, 2], [3.0, 3, 3])
    write(records, "bbb", [2.0, 2, 2], [9.0, 9, 9])
    found = verdicts(flights_claims(records))
    assert found["BBB+NCP has lower test RMSE than BBB."] == "holds"
    assert found["The test NLPD of BBB diverges (ends a nat above its best)."] == "holds"
    assert not any("Det" in text for text in found)
