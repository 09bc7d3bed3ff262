from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncprior import NCPRegressor
from ncprior.core.prediction import Prediction
from ncprior.tables import search
from ncprior.tables.calibration import Calibration
from ncprior.tables.familiarity import MAX_SCORES, Familiarity, held_out_novelty, novelty
from ncprior.tables.holdout import Stopping, hold_out

POSITIVE = st.floats(1e-6, 1e6)


def test_the_share_of_reference_rows_that_are_at_least_as_uncertain():
    found = Familiarity.of([3.0, 1.0, 2.0, 2.0])(np.array([0.0, 1.0, 1.5, 2.0, 3.0]))
    np.testing.assert_allclose(found, [1.0, 1.0, 0.8, 0.8, 0.4])


@given(st.lists(POSITIVE, max_size=30), st.lists(POSITIVE, min_size=2, max_size=30))
def test_more_uncertain_rows_are_never_more_familiar(reference, scores):
    found = Familiarity.of(reference)(np.sort(scores))
    assert (np.diff(found) <= 0).all()
    assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize("rows", [9, 19, 100, 3000])
@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_a_share_of_rows_like_the_reference_is_below_that_share(rows, spread):
    rng = np.random.default_rng(rows)
    below = []
    for _ in range(2_000_000 // (rows + 1000) // 4):
        familiarity = Familiarity.of(rng.lognormal(sigma=spread, size=rows))(rng.lognormal(sigma=spread, size=1000))
        below.append([(familiarity < share).mean() for share in (0.05, 0.2, 0.5)])
    # No more than that, and hardly less: of few rows a familiarity has few values.
    excess = np.mean(below, 0) - [0.05, 0.2, 0.5]
    assert (excess < 0.015).all()
    assert (excess > [-0.015, *[-0.015 - 1 / (rows + 1)] * 2]).all()


def test_few_reference_rows_can_tell_of_rows_that_are_far():
    familiarity = Familiarity.of(np.random.default_rng(0).lognormal(sigma=0.3, size=10))
    assert familiarity(np.array([50.0])) < 0.001


def test_many_reference_rows_are_kept_as_quantiles():
    many = np.random.default_rng(0).lognormal(size=50_000)
    scores = np.linspace(0, 20, 500)
    familiarity = Familiarity.of(many)
    assert len(familiarity.scores) == MAX_SCORES
    exact = (1 + (many >= scores[:, None]).sum(1)) / (len(many) + 1)
    np.testing.assert_allclose(familiarity(scores), exact, atol=0.002)
    again = Familiarity.of(familiarity.scores)
    np.testing.assert_array_equal(again(scores), familiarity(scores))


def test_equal_rows_are_familiar():
    """As those of a model that learned nothing, or has no uncertainty."""
    assert Familiarity.of(np.zeros(5))(np.zeros(2)).tolist() == [1, 1]
    assert Familiarity.of([])(np.ones(2)).tolist() == [1, 1]


def test_members_that_hold_out_what_is_around_a_row_do_not_count():
    """Two members, three rows: the first holds out the values of row 1, both those of row 2."""
    uncertainty = np.array([[1.0, 50.0, 9.0], [1.0, 2.0, 9.0]], np.float32)[..., None]
    predictions = Prediction(np.zeros_like(uncertainty), np.ones_like(uncertainty), uncertainty)
    in_gap = np.array([[False, True, True], [False, False, True]])
    found = held_out_novelty(Calibration.equal(2), predictions, None, in_gap)
    np.testing.assert_allclose(found, [1.0, 2.0], rtol=1e-6)


def test_held_out_rows_know_whether_they_lie_in_the_gap():
    columns = np.random.default_rng(0).uniform(size=(400, 1))
    for one in hold_out(columns, 3, Stopping(), np.random.default_rng(1)):
        low, high = columns[one.gap].min(), columns[one.gap].max()
        inside = (columns[one.random, 0] >= low) & (columns[one.random, 0] <= high)
        np.testing.assert_array_equal(one.random_in_gap, inside)
        assert 0 < inside.sum() < len(inside)


def test_outputs_count_together():
    np.testing.assert_allclose(novelty([[3.0, 4.0]]), [12.5**0.5])


def table(rows, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (rows, 3))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=rows)


@pytest.fixture(scope="module")
def model():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "min_search_steps", lambda _: 100)
        patch.setattr(search, "Stopping", partial(search.Stopping, max_steps=760))
        return NCPRegressor(members=4, hidden=(32,), random_state=0).fit(*table(1_500, 0))


def test_rows_like_those_of_training_and_others(model, tmp_path):
    new = table(2000, 1)[0]
    like = model.predict_distribution(new)
    assert like.familiarity.shape == (2000,)
    # By 150 held-out rows: a share from Beta(7, 144), which is within this with a probability of 0.995.
    assert 0.01 < (like.familiarity < 0.05).mean() < 0.12
    assert 0.3 < np.median(like.familiarity) < 0.85  # the members that held rows out know a little less
    for column in range(2):
        far = new + 3 * np.eye(3)[column]
        assert (model.predict_distribution(far).familiarity < 0.05).mean() > 0.95
    model.save(tmp_path / "m.ncp")
    again = NCPRegressor.load(tmp_path / "m.ncp").predict_distribution(new)
    np.testing.assert_array_equal(again.familiarity, like.familiarity)


def test_without_held_out_rows_the_training_rows_are_the_reference():
    X, y = table(100, 0)
    model = NCPRegressor(members=2, hidden=(32,), epochs=100, random_state=0).fit(X, y)
    own = model.predict_distribution(X).familiarity
    np.testing.assert_allclose(np.sort(own), np.arange(1, 101) / 101 + 1 / 101, atol=0.011)
    assert (model.predict_distribution(X + 5).familiarity < 0.05).mean() > 0.9
