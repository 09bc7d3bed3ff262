"""Methods that ``evaluate`` compares with: neighbours, a Gaussian process, conformal intervals, anyone's regressor."""

import sys
import types

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import BayesianRidge, LinearRegression

from ncprior.errors import UserError
from ncprior.experiments import baselines, evaluate, gaussian_process, neighbours, regressors
from ncprior.experiments.scores import detection, scores
from ncprior.experiments.variants import check_method, method_style

try:
    import mapie
except ImportError:
    mapie = None


def rows_of(count, seed, low=-2.0, high=2.0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(low, high, (count, 2))
    noise = np.where(x[:, 1] > 0, 1.0, 0.2)
    return pa.table({"a": x[:, 0], "b": x[:, 1]}), 50 + 5 * np.sin(x[:, 0]) + noise * rng.normal(size=count)


TRAIN, TEST, BEYOND = rows_of(400, 0), rows_of(400, 1), rows_of(200, 2, 4.0, 6.0)


def fitted(name):
    return baselines.fit(name, *TRAIN, 0)


def in_units(found):
    return found.prediction.rescale(found.scale, found.shift)


@pytest.mark.parametrize("name", ["neighbours", "gp"])
def test_baselines_that_know_what_is_off_the_data(name):
    predict = fitted(name)
    on, off = predict(TEST[0]), predict(BEYOND[0])
    found = scores(on, TEST[1])
    assert found["rmse"] < 0.95
    assert 0.85 < found["coverage"] < 0.96
    assert detection(off.doubt, on.doubt) > 0.99


def test_the_distance_is_that_to_five_rows():
    predict = fitted("neighbours")
    inputs = np.column_stack([TRAIN[0][name].to_numpy() for name in "ab"])
    iqr = np.quantile(inputs, 0.75, axis=0) - np.quantile(inputs, 0.25, axis=0)
    scaled = inputs / (iqr / 1.349)
    point = np.array([0.3, 0.4])
    nearest = np.sort(np.linalg.norm(scaled - point / (iqr / 1.349), axis=1))[:5]
    found = predict(pa.table({"a": point[:1], "b": point[1:]}))
    assert found.doubt.name == "distance to the 5 nearest rows"
    assert found.doubt.values[0] == pytest.approx(nearest.mean(), rel=1e-3)


def test_large_tables_are_learnt_from_in_part(monkeypatch):
    monkeypatch.setattr(neighbours, "MOST_ROWS", 50)
    monkeypatch.setattr(gaussian_process, "MOST_ROWS", 50)
    for name in ("neighbours", "gp"):
        assert scores(fitted(name)(TEST[0]), TEST[1])["rmse"] < 2.5  # of 3.5 for the mean


def test_a_gaussian_process_of_many_columns_has_one_length():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, 30))
    predict = gaussian_process.fit_gaussian_process(inputs, inputs[:, 0], 0)
    found = predict(np.concatenate([inputs, 9 + inputs]))
    assert found.uncertainty[60:].min() > found.uncertainty[:60].max()


@pytest.mark.parametrize(
    ("path", "spread", "doubt"),
    [
        ("sklearn.linear_model.BayesianRidge", "std", "predicted std"),
        ("sklearn.linear_model.QuantileRegressor", "quantile fits", "width between quantiles"),
        ("sklearn.ensemble.HistGradientBoostingRegressor", "quantile fits", "width between quantiles"),
        ("sklearn.ensemble.GradientBoostingRegressor", "quantile fits", "width between quantiles"),
        ("sklearn.linear_model.LinearRegression", "constant", None),
        ("sklearn.tree.DecisionTreeRegressor", "constant", None),
    ],
)
def test_regressors_by_import_path(path, spread, doubt):
    check_method(path)
    assert regressors.spread_of(regressors.load(path)) == spread
    predict = fitted(path)
    found = predict(TEST[0])
    assert (found.doubt and found.doubt.name) == doubt
    result = scores(found, TEST[1])
    assert result["rmse"] < (4.5 if "QuantileRegressor" in path else 2.5)  # which shrinks all weights to 0 here
    assert 0.75 < result["coverage"] <= 0.98
    again = baselines.fit(path, *TRAIN, 0)(TEST[0])
    np.testing.assert_array_equal(in_units(found).mean, in_units(again).mean)


def test_a_regressor_says_what_it_would_without_evaluate():
    found = in_units(fitted("sklearn.linear_model.BayesianRidge")(TEST[0]))
    plain, rows = (np.column_stack([part[name].to_numpy() for name in "ab"]) for part in (TRAIN[0], TEST[0]))
    mean, std = BayesianRidge().fit(plain, TRAIN[1]).predict(rows, return_std=True)
    np.testing.assert_allclose(found.mean[:, 0], mean, rtol=1e-2)
    np.testing.assert_allclose(found.std[:, 0], std, rtol=1e-2)
    constant = in_units(fitted("sklearn.linear_model.LinearRegression")(TEST[0]))
    line = LinearRegression().fit(plain, TRAIN[1])
    np.testing.assert_allclose(constant.mean[:, 0], line.predict(rows), rtol=1e-3)
    np.testing.assert_allclose(constant.std, np.std(TRAIN[1] - line.predict(plain)), rtol=0.05)


class Constant(RegressorMixin, BaseEstimator):
    def __init__(self, value=1.0):
        self.value = value

    def fit(self, X, y):  # noqa: ARG002
        return self

    def predict(self, X):
        return np.full(len(X), self.value)


class Quantiles(Constant):
    def predict(self, X, quantiles=None):
        return np.tile(50 + 10 * (np.array(quantiles) - 0.5), (len(X), 1))


class Broken(Constant):
    def fit(self, X, y):  # noqa: ARG002
        raise ValueError("no\nluck")


class Needy(Constant):
    def __init__(self, value):
        self.value = value


@pytest.fixture
def own(monkeypatch):
    """A module of someone's own regressors."""
    module = types.ModuleType("own_models")
    vars(module).update(
        Quantiles=Quantiles, Broken=Broken, Needy=Needy, tuned=Constant(50.0), word="text", nan=Constant(np.nan)
    )
    monkeypatch.setitem(sys.modules, "own_models", module)


@pytest.mark.usefixtures("own")
def test_regressors_of_ones_own():
    found = in_units(fitted("own_models.tuned")(TEST[0]))
    np.testing.assert_allclose(found.mean, 50, rtol=1e-5)
    np.testing.assert_allclose(found.std, np.sqrt(np.mean((TRAIN[1] - 50) ** 2)), rtol=1e-4)
    lower, upper = in_units(fitted("own_models.Quantiles")(TEST[0])).interval(0.9)
    np.testing.assert_allclose([lower[0, 0], upper[0, 0]], [45.5, 54.5], rtol=1e-4)
    with pytest.raises(UserError, match=r"^own_models.Broken failed \(ValueError: no luck\)$"):
        fitted("own_models.Broken")
    with pytest.raises(UserError, match=r"own_models.nan must predict one finite number for each of 400 rows"):
        fitted("own_models.nan")(TEST[0])


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere.at.All", r"nowhere.at.All cannot be imported \(ModuleNotFoundError: No module named 'nowhere'\)"),
        ("sklearn.linear_model.Bayes", "sklearn.linear_model.Bayes: sklearn.linear_model has no 'Bayes'"),
        ("sklearn.linear_model.LogisticRegression", "sklearn.linear_model.LogisticRegression is no regressor"),
        ("sklearn.preprocessing.StandardScaler", "sklearn.preprocessing.StandardScaler is no regressor"),
        ("os.path", "os.path is no regressor"),
        ("own_models.word", "own_models.word is no regressor"),
        ("own_models.Needy", "own_models.Needy cannot be made without arguments"),
        ("sklearn.ensemble.StackingRegressor", "cannot be made without arguments"),
        ("../x.y", "unknown method '../x.y': choose from ncp, "),
        ("magic", "unknown method 'magic': choose from .*, or give the import path of a regressor"),
    ],
)
def test_what_is_no_regressor_is_refused_in_one_line(path, said):
    with pytest.raises(UserError, match=said) as refused:
        evaluate.Config("t.csv", "y", "random", "", methods=("mean", path))
    assert "\n" not in str(refused.value)


def test_regressors_have_a_style_that_does_not_import_them():
    first, second = (method_style(f"nowhere.at.all.{name}") for name in ("First", "Second"))
    assert (first.title, second.title) == ("First", "Second")
    assert first[1:] != second[1:]


@pytest.mark.skipif(mapie is None, reason="MAPIE is not installed")
@pytest.mark.parametrize("name", ["mapie", "mapie-cqr"])
def test_conformal_intervals_keep_their_promise(name, capsys):
    found = baselines.fit(name, *rows_of(1000, 3), 0)(TEST[0])
    result = scores(found, TEST[1])
    assert 0.86 < result["coverage"] < 0.95
    assert result["rmse"] < 1.0
    assert capsys.readouterr().err == ""
    assert found.doubt.name == "width of the interval"
    lower, upper = in_units(found).interval(0.9)
    widths = np.asarray(upper - lower)[:, 0]
    noisy = TEST[0]["b"].to_numpy() > 0
    ratio = np.median(widths[noisy]) / np.median(widths[~noisy])
    assert ratio > 1.5 if name == "mapie-cqr" else ratio < 1.2  # only quantiles know where the noise is


def test_conformal_intervals_are_refused_without_mapie(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"^mapie needs mapie; pip install 'ncprior\[conformal\]'$"):
        evaluate.Config("t.csv", "y", "random", "", methods=("mapie",))
