"""Verdicts: for every claim, records in which the paper is right, and records that break it."""

import numpy as np
import pytest

from ncprior.experiments.records import Records
from ncprior.report.claims.ablations import ablation_claims
from ncprior.report.claims.flights import flights_claims
from ncprior.report.claims.regression import regression_claims
from ncprior.report.claims.robustness import flights_robustness_claims, toy_robustness_claims
from ncprior.report.claims.toy import measure_bands, rank_correlation, toy_claims
from ncprior.report.claims.verdicts import RULE, all_of, claim, judge, lower, median, within

SEEDS, EPOCHS = 5, 8
NAN = np.nan


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ([1, 1, 1, 1, 1], [2, 2, 2, 2, 0], "holds"),
        ([1, 1, 1, 1, 1], [2, 2, 2, 0, 0], "unclear"),
        ([1, 1, 1, 1, 1], [2, 0, 0, 0, 0], "does not hold"),
        ([1, 1, 1, 1], [2, 2, 2, 2], "unclear"),  # fewer than five seeds settle nothing
        ([1, 1, 1, 1], [0, 0, 0, 0], "unclear"),
        ([1, 1, 1, NAN, NAN], [2, 2, 2, 2, 2], "unclear"),
        ([1, NAN, NAN, NAN, NAN], [2, 2, 2, 2, 2], "does not hold"),
        ([1, 1, 1, 1, 1], [NAN, NAN, NAN, NAN, 2], "holds"),
        ([NAN, NAN, NAN, NAN, 1], [NAN, NAN, NAN, NAN, 2], "does not hold"),
        ([1] * 3 + [NAN] * 17, [2] * 20, "does not hold"),
        ([1, 1, 1, 1, 1], [np.inf, np.inf, np.inf, np.inf, 2], "holds"),
        ([np.inf] * 5, [np.inf] * 5, "does not hold"),
    ],
)
def test_verdicts_by_the_share_of_seeds(first, second, verdict):
    assert judge(lower(np.array(first, float), np.array(second, float))) == verdict


def test_a_claim_of_several_parts():
    assert all_of(["holds", "holds"]) == "holds"
    assert all_of(["holds", "unclear"]) == "unclear"
    assert all_of(["holds", "unclear", "does not hold"]) == "does not hold"
    assert all_of([]) == "unclear"
    assert claim("", "", []).verdict == "unclear"
    yes, no = np.ones(5, bool), np.zeros(5, bool)
    assert claim("", "n", [yes]) == ("", "n; true of 5 of 5 seeds", "holds")
    assert claim("", "n", [yes, no]) == ("", "n; true of 5 and 0 of 5 seeds", "does not hold")
    told = claim("", "n", [yes] * 6 + [no, yes & (np.arange(5) < 3)]).numbers
    assert told == "n; of 8 comparisons 6 hold, 1 are unclear, 1 do not hold"


def test_numbers_say_how_many_seeds_failed():
    assert median(np.array([1.0, 2.0, 3.0])) == "2"
    assert median(np.array([1.0, NAN, NAN, 3.0])) == "2 (2 of 4 seeds failed)"
    assert median(np.array([NAN])) == "none (1 of 1 seeds failed)"
    assert within(np.array([1.0, 1, NAN]), np.array([1.1, 2, NAN]), 0.2).tolist() == [True, False, False]
    assert "failed" in RULE
    assert "fewer than five" in RULE


def test_rank_correlation():
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([10.0, 20, 90])) == pytest.approx(1)
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([5.0, 4, 3])) == pytest.approx(-1)
    assert rank_correlation(np.ones(3), np.arange(3.0)) == 0
    # With ties as scipy.stats.spearmanr([1, 1, 2, 3], [1, 2, 3, 4]) gives it.
    assert rank_correlation(np.array([1, 1, 2, 3]), np.arange(4.0)) == pytest.approx(0.9486833)


def every(value):
    """The same value of every seed at every evaluation, or values that go evenly from the first to the last."""
    first, last = value if isinstance(value, tuple) else (value, value)
    return np.tile(np.linspace(first, last, EPOCHS), (SEEDS, 1))


def metrics(rmse, nlpd, train_nlpd=0.0):
    return {"test_rmse": every(rmse), "test_nlpd": every(nlpd), "train_nlpd": every(train_nlpd)}


def write_metrics(records, name, values, failed=(), **columns):
    """Metrics ``[seeds, evaluations]``; as in a run, those of seeds that failed are NaN at the end."""
    runs = len(next(iter(values.values())))
    values = {key: np.array(value, float) for key, value in values.items()}
    for value in values.values():
        value[list(failed), -1] = NAN
    tags = {"seed": np.arange(runs) % SEEDS, **columns}
    records.write_table(
        f"metrics/{name}.parquet",
        {
            **{key: np.tile(value, EPOCHS) for key, value in tags.items()},
            "epoch": np.repeat(np.arange(1, EPOCHS + 1) * 100, runs),
            "labels": np.repeat(np.arange(1, EPOCHS + 1) * 10, runs),
            **{key: value.T.ravel() for key, value in values.items()},
        },
    )
    why = dict.fromkeys(failed, "the loss was not finite")
    records.write_tree(f"models/{name}.safetensors", {"a": np.zeros(1)}, failed=why)


X = np.linspace(-1, 1, 101)
INSIDE = (np.abs(X + 0.4) < 0.2) | (np.abs(X - 0.4) < 0.2)


def sure_everywhere():
    return {"noise": np.full(len(X), 0.1), "uncertainty": np.full(len(X), 0.01)}


def unsure_off_the_bands():
    return {"noise": 0.2 * (X + 1), "uncertainty": np.where(INSIDE, 0.1, 2.0)}


def toy_world():
    """Metrics, curves and failed seeds by method, in which all that the paper says of the toy data is so."""
    return {
        "bbb+ncp": [metrics((2, 1), (2, 1)), unsure_off_the_bands(), ()],
        "odc+ncp": [metrics((2, 1), (2, 1)), unsure_off_the_bands(), ()],
        "bbb": [metrics((2, 3), (2, 6)), sure_everywhere(), ()],
        "det": [metrics((3, 4), (5, 99)), sure_everywhere(), ()],
    }


def toy_records(folder, world, experiment="toy"):
    records = Records.create(folder / "run", experiment, {"methods": list(world)}, resume=False)
    # Every point is one away from the mean of all models, above or below it.
    y = np.where(np.arange(len(X)) % 2, 1.0, -1.0)
    records.write_table("data.parquet", {"x": X, "y": y, "train": INSIDE})
    for name, (values, curves, failed) in world.items():
        write_metrics(records, name, values, failed)
        parts = {key: np.tile(value, SEEDS) for key, value in {"x": X, "mean": 0 * X, **curves, "score": X}.items()}
        records.write_table(f"curves/{name}.parquet", {"seed": np.repeat(np.arange(SEEDS), len(X)), **parts})
    return records


def verdicts(claims):
    return {claim.text: claim.verdict for claim in claims}


def one(claims, words):
    """The verdict on the only claim with these words."""
    (verdict,) = [verdict for text, verdict in verdicts(claims).items() if words in text]
    return verdict


def change(world, name, part, **values):
    world[name][part] = world[name][part] | values


TOY = {
    "Figure 1: Det is overconfident": lambda w: change(w, "det", 1, noise=np.full(len(X), 3.0)),
    "Figure 1: BBB is overconfident": lambda w: change(w, "bbb", 1, uncertainty=np.full(len(X), 3.0)),
    "NCP prevents overconfidence in BBB+NCP": lambda w: change(w, "bbb+ncp", 1, uncertainty=np.full(len(X), 0.1)),
    "NCP prevents overconfidence in ODC+NCP": lambda w: change(w, "odc+ncp", 1, uncertainty=np.full(len(X), 0.1)),
    "BBB+NCP tells uncertainty from noise": lambda w: change(w, "bbb+ncp", 1, uncertainty=np.full(len(X), 2.0)),
    "ODC+NCP tells uncertainty from noise": lambda w: change(w, "odc+ncp", 1, noise=np.where(INSIDE, X, 9.0)),
    "BBB+NCP tells noise from uncertainty": lambda w: change(w, "bbb+ncp", 1, noise=np.full(len(X), 0.2)),
    "ODC+NCP tells noise from uncertainty": lambda w: change(w, "odc+ncp", 1, noise=0.2 * (1 - X)),
    "The test RMSE of the NCP models decreases": lambda w: change(w, "odc+ncp", 0, test_rmse=every((1, 2))),
    "The test NLPD of the NCP models decreases": lambda w: change(w, "bbb+ncp", 0, test_nlpd=every((1, 2))),
    "Models with NCP outperform BBB (RMSE)": lambda w: change(w, "odc+ncp", 0, test_rmse=every((5, 4))),
    "Models with NCP outperform BBB (NLPD)": lambda w: change(w, "bbb+ncp", 0, test_nlpd=every((9, 7))),
    "BBB in turn outperforms Det (RMSE)": lambda w: change(w, "det", 0, test_rmse=every((2, 2))),
    "BBB in turn outperforms Det (NLPD)": lambda w: change(w, "bbb", 0, test_nlpd=every((5, 100))),
    "BBB overfits early": lambda w: change(w, "bbb", 0, test_nlpd=every((9, 6))),  # it is best at the end
    "Det overfits early": lambda w: change(w, "det", 0, train_nlpd=every(100)),  # as bad on what it has seen
}


def covers(cases, claims):
    """Whether there is a breaking case for every claim but those that are none of the paper's."""
    return all(sum(words in claim.text for words in cases) == 1 for claim in claims if "Not a claim" not in claim.text)


def test_all_claims_of_the_toy_experiment_hold_where_they_are_so(tmp_path):
    claims = toy_claims(toy_records(tmp_path, toy_world()))
    assert set(verdicts(claims).values()) == {"holds"}
    assert covers(TOY, claims)


@pytest.mark.parametrize("words", TOY)
def test_each_claim_of_the_toy_experiment_can_break(tmp_path, words):
    world = toy_world()
    TOY[words](world)
    assert one(toy_claims(toy_records(tmp_path, world)), words) == "does not hold"


def test_seeds_that_failed_count_against_their_method(tmp_path):
    world = toy_world()
    world["bbb+ncp"][2] = (0, 1, 2, 3)
    world["det"][2] = (0, 1, 2, 3, 4)
    claims = toy_claims(toy_records(tmp_path, world))
    assert one(claims, "Models with NCP outperform BBB (RMSE)") == "does not hold"
    assert one(claims, "NCP prevents overconfidence in BBB+NCP") == "does not hold"
    assert one(claims, "BBB+NCP tells noise from uncertainty") == "does not hold"
    assert one(claims, "BBB in turn outperforms Det (NLPD)") == "holds"
    assert one(claims, "Det overfits early") == "holds"
    told = next(claim.numbers for claim in claims if "outperform BBB (RMSE)" in claim.text)
    assert "BBB+NCP 1 (4 of 5 seeds failed)" in told


def test_a_seed_that_failed_after_the_last_evaluation_counts_as_failed(tmp_path):
    records = toy_records(tmp_path, toy_world())
    why = dict.fromkeys(range(4), "the loss was not finite")
    records.write_tree("models/odc+ncp.safetensors", {"a": np.zeros(1)}, failed=why)
    assert one(toy_claims(records), "Models with NCP outperform BBB (RMSE)") == "does not hold"


def test_measures_of_figure_1(tmp_path):
    world = toy_world()
    world["bbb"][1]["uncertainty"] = np.where(INSIDE, 0.5, 0.3)
    found = measure_bands(toy_records(tmp_path, world), "bbb")
    np.testing.assert_array_equal(found.outside, np.ones(SEEDS))
    np.testing.assert_array_equal(found.uncertainty, np.zeros(SEEDS))
    np.testing.assert_array_equal(found.noise, np.full(SEEDS, 0.5))
    np.testing.assert_array_equal(found.correlation, np.zeros(SEEDS))
    np.testing.assert_allclose(measure_bands(Records.open(tmp_path / "run"), "bbb+ncp").correlation, 1)


def test_claims_about_methods_that_were_not_run_are_left_out(tmp_path):
    world = {name: toy_world()[name] for name in ("bbb+ncp", "bbb")}
    assert not any("Det" in text or "ODC" in text for text in verdicts(toy_claims(toy_records(tmp_path, world))))


def flights_world():
    return {
        "bbb+ncp": [metrics((4, 2), (3, 1), 0.0), ()],
        "odc+ncp": [metrics((4, 3), (3, 2), 0.0), ()],
        "bbb": [metrics((4, 3), (3, 6), -0.5), ()],
        "det": [metrics((4, 5), (3, 9), -1.0), ()],
        "bbb+ncp@random": [metrics((4, 3), (3, 2), 0.0), ()],
    }


def flights_records(folder, world):
    records = Records.create(folder / "run", "flights", {"methods": list(world)}, resume=False)
    for name, (values, failed) in world.items():
        write_metrics(records, name, values, failed)
    return records


FLIGHTS = {
    "The NCP models have lower test NLPD": lambda w: change(w, "odc+ncp", 0, test_nlpd=every(7)),
    "BBB+NCP has the lowest test RMSE": lambda w: change(w, "odc+ncp", 0, test_rmse=every(1)),
    "BBB+NCP has lower test RMSE than BBB": lambda w: change(w, "bbb", 0, test_rmse=every(1)),
    "ODC+NCP has lower test RMSE than Det": lambda w: change(w, "odc+ncp", 0, test_rmse=every(6)),
    "All uncertainty-based models outperform Det (RMSE)": lambda w: change(w, "bbb", 0, test_rmse=every(7)),
    "All uncertainty-based models outperform Det (NLPD)": lambda w: change(w, "bbb", 0, test_nlpd=every(12)),
    "The test NLPD of BBB diverges": lambda w: change(w, "bbb", 0, test_nlpd=every((7, 6))),
    "The test NLPD of Det diverges": lambda w: change(w, "det", 0, test_nlpd=every((9.5, 9.9))),
    "similar NLPD on the visible labels": lambda w: change(w, "bbb", 0, train_nlpd=every(-2)),
}


def test_all_claims_about_flights_hold_where_they_are_so(tmp_path):
    claims = flights_claims(flights_records(tmp_path, flights_world()))
    assert set(verdicts(claims).values()) == {"holds"}
    assert covers(FLIGHTS, claims)


@pytest.mark.parametrize("words", FLIGHTS)
def test_each_claim_about_flights_can_break(tmp_path, words):
    world = flights_world()
    FLIGHTS[words](world)
    assert one(flights_claims(flights_records(tmp_path, world)), words) == "does not hold"


def test_similar_is_not_said_of_seeds_that_failed(tmp_path):
    world = flights_world()
    world["bbb"][1] = (0, 1, 2, 3)
    claims = flights_claims(flights_records(tmp_path, world))
    assert one(claims, "similar NLPD on the visible labels") == "does not hold"
    assert one(claims, "The test NLPD of BBB diverges") == "holds"


SIZES = np.round(np.arange(0.1, 1.01, 0.1), 1)


def swept(rmse, nlpd):
    """Final RMSE and NLPD by noise and variance, ``[settings, seeds]``, from functions of both."""
    settings = [(noise, size) for noise in ("gaussian", "uniform") for size in SIZES]
    return {
        "test_rmse": [[rmse(*one)] * SEEDS for one in settings],
        "test_nlpd": [[nlpd(*one)] * SEEDS for one in settings],
    }


def robust_world():
    """Where NCP is better than both baselines, and ODC+NCP trades RMSE for NLPD."""
    return {
        "bbb+ncp": swept(lambda _, size: 2 + size, lambda _, size: 1 + size),
        "odc+ncp": swept(lambda _, size: 4 - size, lambda _, size: 2 + size),
        "bbb": {"test_rmse": [[5.0] * SEEDS], "test_nlpd": [[6.0] * SEEDS]},
        "det": {"test_rmse": [[6.0] * SEEDS], "test_nlpd": [[9.0] * SEEDS]},
    }


def robust_records(folder, world):
    records = Records.create(folder / "run", "robustness", {"methods": list(world)}, resume=False)
    for name, values in world.items():
        flat = {key: np.tile(np.reshape(value, (-1, 1)), EPOCHS) for key, value in values.items()}
        tags = {}
        if len(values["test_rmse"]) > 1:
            noise, size = np.repeat(["gaussian", "uniform"], len(SIZES)), np.tile(SIZES, 2)
            tags = {"noise": np.repeat(noise, SEEDS), "variance": np.repeat(size, SEEDS)}
        write_metrics(records, name, flat, **tags)
    return records


def worse(world, name, metric, noise, size, bad):
    place = ["gaussian", "uniform"].index(noise) * len(SIZES) + int(np.flatnonzero(size == SIZES)[0])
    world[name][metric][place] = [bad] * SEEDS


FIGURE5 = {
    "NCP improves over the baselines in all settings": lambda w: worse(w, "odc+ncp", "test_rmse", "uniform", 0.4, 7.0),
    "NCP improves the RMSE of BBB for all": lambda w: worse(w, "bbb+ncp", "test_rmse", "gaussian", 1.0, 5.5),
    "BBB+NCP has the best NLPD for all noise sizes below 0.6": lambda w: worse(
        w, "odc+ncp", "test_nlpd", "uniform", 0.5, 1.2
    ),
    "ODC+NCP has a trade-off": lambda w: w["odc+ncp"].update(swept(lambda _, size: 4 + size, lambda _, size: 2 + size)),
}


def test_all_claims_of_figure_5_hold_where_they_are_so(tmp_path):
    claims = flights_robustness_claims(robust_records(tmp_path, robust_world()))
    assert set(verdicts(claims).values()) == {"holds"}
    assert covers(FIGURE5, claims)


@pytest.mark.parametrize("words", FIGURE5)
def test_each_claim_of_figure_5_can_break(tmp_path, words):
    world = robust_world()
    FIGURE5[words](world)
    assert one(flights_robustness_claims(robust_records(tmp_path, world)), words) == "does not hold"


def test_figure_5_compares_with_det_and_odc_and_only_below_the_limit(tmp_path):
    world = robust_world()
    worse(world, "bbb+ncp", "test_nlpd", "gaussian", 0.6, 5.0)
    claims = flights_robustness_claims(robust_records(tmp_path / "a", world))
    assert one(claims, "has the best NLPD") == "holds"
    world["det"]["test_nlpd"] = [[1.0] * SEEDS]
    claims = flights_robustness_claims(robust_records(tmp_path / "b", world))
    assert one(claims, "has the best NLPD") == "does not hold"


TOY_SWEEP = {
    f"{title} performs well with {label} noise of variance {least} and above": (name, noise, least)
    for title, name, least in (("BBB+NCP", "bbb+ncp", 0.3), ("ODC+NCP", "odc+ncp", 0.1))
    for label, noise in (("Gaussian", "gaussian"), ("uniform", "uniform"))
}


def test_all_claims_of_appendix_c_hold_where_they_are_so(tmp_path):
    claims = toy_robustness_claims(robust_records(tmp_path, robust_world()))
    assert set(verdicts(claims).values()) == {"holds"}
    assert covers(TOY_SWEEP, claims)


@pytest.mark.parametrize("words", TOY_SWEEP)
@pytest.mark.parametrize("metric", ["test_rmse", "test_nlpd"])
def test_each_claim_of_appendix_c_can_break(tmp_path, words, metric):
    name, noise, least = TOY_SWEEP[words]
    world = robust_world()
    worse(world, name, metric, noise, least, 5.5 if metric == "test_rmse" else 8.5)  # between BBB and Det
    claims = toy_robustness_claims(robust_records(tmp_path, world))
    assert one(claims, words) == "does not hold"
    assert list(verdicts(claims).values()).count("holds") == 3


def test_below_its_threshold_nothing_is_said_of_the_toy(tmp_path):
    world = robust_world()
    worse(world, "bbb+ncp", "test_rmse", "gaussian", 0.2, 99.0)
    assert set(verdicts(toy_robustness_claims(robust_records(tmp_path, world))).values()) == {"holds"}


def test_a_toy_sweep_that_det_wins_breaks_every_claim(tmp_path):
    """Means that beat BBB are not enough, nor are claims about another experiment."""
    world = robust_world()
    for name in ("bbb+ncp", "odc+ncp"):
        world[name] = swept(lambda *_: 9.0, lambda *_: 9.0)
    world["bbb"], world["det"] = ({key: [[of] * SEEDS] for key in ("test_rmse", "test_nlpd")} for of in (10.0, 1.0))
    claims = toy_robustness_claims(robust_records(tmp_path, world))
    assert len(claims) == 4
    assert set(verdicts(claims).values()) == {"does not hold"}


def test_settings_whose_seeds_failed_do_not_perform_well(tmp_path):
    world = robust_world()
    worse(world, "odc+ncp", "test_rmse", "uniform", 0.7, NAN)
    claims = toy_robustness_claims(robust_records(tmp_path, world))
    assert one(claims, "ODC+NCP performs well with uniform") == "does not hold"
    assert any("(5 of 50 runs failed)" in claim.numbers for claim in claims)


def ablation_world():
    return {
        name: [metrics(1.0, 1.0), unsure_off_the_bands(), ()]
        for name in ("bbb+ncp", "bbb+ncp@reverse", "bbb+ncp@weight_prior")
    }


ABLATIONS = {
    "The direction of the KL divergence": lambda w: change(w, "bbb+ncp@reverse", 0, test_nlpd=every(0.85)),
    "needs no normal prior on its weights": lambda w: change(w, "bbb+ncp@weight_prior", 0, test_rmse=every(0.85)),
}


def test_all_claims_about_variants_hold_where_they_are_so(tmp_path):
    world = ablation_world()
    claims = ablation_claims(toy_records(tmp_path / "a", world))
    assert set(verdicts(claims).values()) == {"holds"}
    assert covers(ABLATIONS, claims)
    # A weight prior that does harm is not needed either.
    change(world, "bbb+ncp@weight_prior", 0, test_rmse=every(5), test_nlpd=every(5))
    claims = ablation_claims(toy_records(tmp_path / "b", world))
    assert one(claims, "needs no normal prior") == "holds"


@pytest.mark.parametrize("words", ABLATIONS)
def test_each_claim_about_variants_can_break(tmp_path, words):
    world = ablation_world()
    ABLATIONS[words](world)
    assert one(ablation_claims(toy_records(tmp_path, world)), words) == "does not hold"


def table1_world():
    """Final NLPD and RMSE by method."""
    values = {"bbb": (4.40, 24.6), "bbb+ncp": (4.38, 24.7), "odc+ncp": (4.39, 24.65), "det": (4.41, 24.7)}
    return {name: [{"test_nlpd": nlpd, "test_rmse": rmse}, ()] for name, (nlpd, rmse) in values.items()}


def table1_records(folder, world, seeds=SEEDS):
    records = Records.create(folder / "run", "regression", {"methods": list(world)}, resume=False)
    for name, (values, failed) in world.items():
        columns = {key: np.full(seeds, value) for key, value in values.items()}
        records.write_table(
            f"metrics/{name}.parquet", {"seed": np.arange(seeds), "epoch": np.full(seeds, 3), **columns}
        )
        notes = {"seeds": list(range(seeds)), "epochs": [3] * seeds, "failed": dict.fromkeys(failed, "diverged")}
        records.write_tree(f"models/{name}.safetensors", {"a": np.zeros(1)}, **notes)
    records.write_json("results.json", {"baselines": {"boosting": {"test_nlpd": 4.6, "test_rmse": 25.0}}})
    return records


TABLE1 = {
    "BBB, BBB+NCP and ODC+NCP are equal": lambda w: change(w, "odc+ncp", 0, test_rmse=24.2),
    "BBB improves the published state of the art": lambda w: change(w, "bbb", 0, test_nlpd=4.9),
    "BBB+NCP improves the published state of the art": lambda w: change(w, "bbb+ncp", 0, test_rmse=26.6),
    "ODC+NCP improves the published state of the art": lambda w: change(w, "odc+ncp", 0, test_rmse=30.0),
}


def starting(claims, words):
    (verdict,) = [claim.verdict for claim in claims if claim.text.startswith(words)]
    return verdict


def test_all_claims_of_table_1_hold_where_they_are_so(tmp_path):
    claims = regression_claims(table1_records(tmp_path, table1_world()))
    assert set(verdicts(claims).values()) == {"holds"}
    for claim_ in claims:
        if "Not a claim" in claim_.text:
            continue
        assert sum(claim_.text.startswith(words) for words in TABLE1) == 1
        assert "published" not in claim_.text or "authors' split, which is not this one" in claim_.text
    assert sum("boosted trees" in text for text in verdicts(claims)) == 4


@pytest.mark.parametrize("words", TABLE1)
def test_each_claim_of_table_1_can_break(tmp_path, words):
    world = table1_world()
    TABLE1[words](world)
    assert starting(regression_claims(table1_records(tmp_path, world)), words) == "does not hold"


def test_table_1_with_few_or_failed_seeds(tmp_path):
    claims = regression_claims(table1_records(tmp_path / "one", table1_world(), seeds=1))
    assert set(verdicts(claims).values()) == {"unclear"}
    world = table1_world()
    world["bbb"][1] = (0, 1, 2, 4)
    claims = regression_claims(table1_records(tmp_path / "failed", world))
    for words in ("BBB, BBB+NCP and", "BBB improves", "Not a claim of the paper: BBB is below boosted trees"):
        assert starting(claims, words) == "does not hold"
