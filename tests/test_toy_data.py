import numpy as np

from ncprior.data import toy
from ncprior.data.dataset import standardised


def test_is_the_released_data():
    data = toy.load()
    x = np.concatenate([data.train_inputs, data.test_inputs])[:, 0]
    assert sorted(x) == sorted(np.linspace(-1, 1, 1000).astype(np.float32))
    assert data.train_inputs.shape == (400, 1)
    assert data.test_targets.shape == (600, 1)
    # Points 200 and 399 are the ends of the first band.
    grid = np.linspace(-1, 1, 1000).astype(np.float32)
    np.testing.assert_array_equal(data.train_inputs[[0, 199, 200, 399], 0], grid[[200, 399, 600, 799]])


def test_targets_follow_the_formula():
    data = toy.load()
    x = data.test_inputs[:, 0].astype(np.float64)
    residual = (data.test_targets[:, 0] - 0.5 * np.sin(25 * x) - 0.5 * x) / (0.2 * (x + 1) + 1e-12)
    residual = residual[x > -0.99]
    assert abs(residual.mean()) < 0.1
    assert abs(residual.std() - 1) < 0.1
    # The first draw of NumPy's legacy generator with seed 0 belongs to the first point, where the noise is 0.
    first = np.random.RandomState(0).normal(0, 0.2 * (np.linspace(-1, 1, 1000) + 1))[1]
    grid = np.linspace(-1, 1, 1000)[1]
    np.testing.assert_allclose(data.test_targets[1, 0], 0.5 * np.sin(25 * grid) + 0.5 * grid + first, rtol=1e-6)


def test_standardised_uses_training_rows_only():
    train, test = np.array([[0.0, 5.0], [2.0, 5.0]]), np.array([[100.0, 5.0]])
    data = standardised(train, np.array([[1.0], [3.0]]), test, np.array([[500.0]]))
    np.testing.assert_allclose(data.train_inputs, [[-1, 0], [1, 0]])
    np.testing.assert_allclose(data.test_inputs, [[99, 0]])
    assert (data.target_shift, data.target_scale) == (2.0, 1.0)
    np.testing.assert_allclose(data.target_shift + data.target_scale * data.test_targets, [[500.0]])
