"""The prior over functions: what is trained in every stage, what is on record, and what the page shows."""

import dataclasses

import numpy as np
import pytest

from ncprior.core import active
from ncprior.core.active import Schedule
from ncprior.core.metrics import METRICS
from ncprior.core.settings import PAPER
from ncprior.errors import UserError
from ncprior.experiments.paper import function_prior
from ncprior.experiments.paper.function_prior import STAGES, Config, configure
from ncprior.experiments.records import Records
from ncprior.report.function_prior import collect
from ncprior.report.page import report

SETTINGS = dataclasses.replace(PAPER, hidden=(30,), learning_rate=1e-2, batch_size=20, output_std=0.8)
SMALL = Config("paper", SETTINGS, Schedule(300, 20, 1, 300, 100), seeds=3)


@pytest.fixture(scope="module", autouse=True)
def few_metrics():
    """Programs without the metrics that nothing here is about compile faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(active, "METRICS", {name: METRICS[name] for name in ("rmse", "nlpd")})
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "prior"
    seen = []
    with Records.running(folder, function_prior.NAME, dataclasses.asdict(SMALL), resume=False) as records:
        function_prior.experiment(SMALL, records, seen.append)
    return records, seen


def test_a_stage_has_the_data_term_only_if_it_has_data():
    assert set(SMALL.method("data").objective) == {"nll", "ncp"}
    for stage in ("initial", "ncp", "fantasised"):
        assert set(SMALL.method(stage).objective) == {"ncp"}
    centres = {stage: SMALL.method(stage).objective["ncp"].term.prior.centre for stage in STAGES}
    assert centres == {"initial": "target", "ncp": 0.0, "fantasised": "target", "data": "target"}
    moved = dataclasses.replace(SMALL, settings=dataclasses.replace(SETTINGS, output_centre=2.0))
    assert moved.method("ncp").objective["ncp"].term.prior.centre == 2.0


def test_functions_of_the_prior_spread_as_the_output_prior_says(finished):
    records, seen = finished
    found = {stage: of["bands"] for stage, of in records.read_json("results.json")["stages"].items()}
    assert found["ncp"]["std"] == pytest.approx(0.8, rel=0.15)
    assert found["ncp"]["mean"] < 0.2
    assert found["data"]["std"] < 0.95 * found["ncp"]["std"]
    # Targets that differ from seed to seed are among what the functions are uncertain about.
    assert found["fantasised"]["std"] > found["ncp"]["std"]
    assert [progress.method for progress in seen] == [name for name in list(STAGES)[1:] for _ in range(3)]


def test_every_seed_fantasises_targets_of_its_own(finished):
    targets = finished[0].read_table("targets/fantasised.parquet")
    y = targets["y"].reshape(3, 20)
    np.testing.assert_array_equal(targets["x"].reshape(3, 20)[0], targets["x"].reshape(3, 20)[2])
    assert abs(np.corrcoef(y)[0, 1]) < 0.9
    assert y.std() == pytest.approx(0.8, rel=0.25)


def test_drawn_functions_are_those_of_the_belief(finished):
    for stage, of in collect(finished[0]).items():
        assert of.draws.shape == (24, 301)
        away = np.abs(of.draws - of.mean) / of.std
        assert 0.5 < np.sqrt(np.mean(away**2)) < 1.6, stage


def test_the_page_is_drawn_from_records_and_a_finished_run_does_not_run_again(finished):
    records, _ = finished
    page = report(records.folder).read_text()
    assert "Functions drawn from the prior" in page
    assert page.count("data:image/svg+xml;base64,") == 2  # for a wide page and for a narrow one
    assert records.path("figures/function-prior.png").stat().st_size > 10_000
    first = records.path("functions/ncp.parquet").stat().st_mtime_ns
    again = []
    function_prior.experiment(SMALL, records, again.append)
    assert not again
    assert records.path("functions/ncp.parquet").stat().st_mtime_ns == first
    records.remove("functions/data.parquet")
    with pytest.raises(UserError, match=r"not finished \(data missing\)"):
        report(records.folder)
    function_prior.experiment(SMALL, records, again.append)
    assert {progress.method for progress in again} == {"data"}


def test_mistakes_are_told():
    with pytest.raises(UserError, match="seeds must be at least 1"):
        configure(seeds=0)
    with pytest.raises(UserError, match="initial must be at most 400"):
        function_prior.labelled_toy(401)
    assert configure(quick=True).schedule.epochs < configure().schedule.epochs
