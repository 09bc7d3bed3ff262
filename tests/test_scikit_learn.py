"""NCPRegressor is an estimator like those of scikit-learn."""

import pickle

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ncprior import NCPRegressor
from test_estimator import wave


@parametrize_with_checks([NCPRegressor(members=2, hidden=(16,), epochs=60, random_state=0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_in_pipelines_and_searches():
    X, y = wave(60)
    model = NCPRegressor(members=1, hidden=(8,), epochs=3, random_state=0)
    pipeline = make_pipeline(ColumnTransformer([("scale", StandardScaler(), [0])]), model).fit(X, y)
    mean, std = pipeline.predict(X, return_std=True)
    assert mean.shape == std.shape == (60,)
    search = GridSearchCV(clone(model), {"gamma": [0.0, 10.0]}, cv=2, error_score="raise").fit(X, y)
    assert set(search.best_params_) == {"gamma"}
    scaled = make_pipeline(StandardScaler().set_output(transform="pandas"), clone(model)).fit(X, y)
    assert np.isfinite(scaled.predict(X)).all()
    again = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(again.predict(X), mean)
