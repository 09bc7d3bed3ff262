"""Arguments and settings of the estimator: each changes what it says it changes, or is refused."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

from ncprior import NCPRegressor
from ncprior.data.encoding import Encoder
from ncprior.errors import UserError
from ncprior.recipe import noise_of, number_columns

KEY = jax.random.key(0)


def collinear(rows=4000):
    """Three columns: two that go together and one that has little to do with them."""
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, rows))
    return pa.table({"x0": a, "x1": a + 0.05 * b, "x2": 0.3 * a + c})


@pytest.mark.parametrize("prior", ["gaussian", "radial", "uniform"])
@pytest.mark.parametrize(
    "scale",
    [
        2.0,
        0.5,
        {"x0": 0, "x1": 2},
        {"x0": 0.1, "x1": 3.0, "x2": 1.0},
        {"x2": 0.0},
        dict.fromkeys(["x0", "x1", "x2"], 0),
    ],
)
def test_noise_has_the_scale_of_its_column(scale, prior):
    table = collinear()
    encoder = Encoder.fit(table)
    inputs = encoder.transform(table)
    columns = inputs[:, number_columns(encoder.groups)]
    model = NCPRegressor(input_scale=scale, input_prior=prior)
    noised = noise_of(model, SimpleNamespace(method=SimpleNamespace(input_prior=prior)), encoder, columns)
    noise = np.asarray(noised(jnp.asarray(inputs), key=KEY) - inputs)[:, :3]
    wanted = np.array([scale.get(name, 2.0) if isinstance(scale, dict) else scale for name in table.column_names])
    np.testing.assert_array_equal(noise[:, wanted == 0], 0)
    # The uniform noise of scale s fills 2 s on both sides.
    factor = 2 / np.sqrt(3) if prior == "uniform" else 1.0
    np.testing.assert_allclose(noise.std(0), factor * wanted, rtol=0.08)


def wave(rows=60):
    x = np.random.default_rng(0).uniform(-2, 2, rows)
    return x[:, None], np.sin(2 * x)


@pytest.mark.parametrize(
    ("rows", "arguments", "left"),
    [(30, {"epochs": 2}, 30), (80, {"batch_size": 64}, 56), (15, {"batch_size": 16}, 15)],
    ids=["all rows", "rows that are not held out", "too few to search"],
)
def test_dropped_rows_that_would_never_train_are_refused(rows, arguments, left):
    model = NCPRegressor(members=2, hidden=(4,), settings={"remainder": "dropped"}, random_state=0, **arguments)
    with pytest.raises(UserError, match=f"{left} rows to train on do not fill a mini batch of"):
        model.fit(*wave(rows))


def test_steps_that_dropped_rows_train_for_change_the_networks():
    X, y = wave(20)
    arguments = {
        "members": 1,
        "hidden": (4,),
        "batch_size": 16,
        "settings": {"remainder": "dropped"},
        "random_state": 0,
    }
    few, more = (NCPRegressor(epochs=epochs, **arguments).fit(X, y) for epochs in (1, 8))
    assert (few.steps_, more.steps_) == ((2,), (10,))
    assert (few.predict(X) != more.predict(X)).all()
    with pytest.raises(UserError, match="5 rows to train on do not fill a mini batch of 16"):
        more.partial_fit(X[:5], y[:5])
