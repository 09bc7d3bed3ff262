"""Input priors: the laws of their noise, and what they must leave alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ncprior.core.input_priors import FlipCategories, Gaussian, Uniform
from ncprior.core.table_priors import DataShaped, FromPool, NoisedShare, PerColumn
from ncprior.tables.input_features import coloring_matrix, principal_components

ROWS = 4000
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def inputs():
    return jnp.asarray(np.random.default_rng(0).normal(size=(ROWS, 3)), jnp.float32)


@pytest.mark.parametrize("prior", [Gaussian(0.0), Uniform(0.0)], ids=["gaussian", "uniform"])
def test_no_noise_leaves_inputs_as_they_are(prior, inputs):
    np.testing.assert_array_equal(prior(inputs, key=KEY), inputs)


@pytest.mark.parametrize(
    "prior", [Gaussian(0.5), Uniform(0.5), FlipCategories(3, 0.5)], ids=lambda prior: type(prior).__name__
)
def test_noise_is_a_function_of_the_key(prior):
    codes = jnp.asarray(np.random.default_rng(0).integers(0, 3, (ROWS, 3)), jnp.float32)
    first, again, other = (prior(codes, key=jax.random.key(seed)) for seed in (1, 1, 2))
    assert first.shape == codes.shape
    assert first.dtype == codes.dtype
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_gaussian_noise_is_normal_with_this_std(inputs):
    noise = np.asarray(Gaussian(0.5)(inputs, key=KEY) - inputs)
    assert stats.kstest(noise.ravel(), stats.norm(0, 0.5).cdf).pvalue > 0.01
    # Columns are noised independently of each other, and of the inputs.
    correlation = np.corrcoef(np.concatenate([noise, np.asarray(inputs)], axis=1).T)
    assert np.abs(correlation[:3] - np.eye(3, 6)).max() < 4 / np.sqrt(ROWS)


def test_uniform_noise_fills_two_sigma_and_no_more(inputs):
    noise = np.asarray(Uniform(0.5)(jnp.zeros_like(inputs), key=KEY)).ravel()
    assert np.abs(noise).max() <= 1.0
    assert stats.kstest(noise, stats.uniform(-1.0, 2.0).cdf).pvalue > 0.01
    assert noise.std() == pytest.approx(0.5 * 2 / np.sqrt(3), rel=0.02)


@pytest.mark.parametrize("kind", [Gaussian, Uniform])
def test_columns_can_have_scales_of_their_own(kind, inputs):
    scales = jnp.array([0.0, 0.3, 2.0])
    zeros = jnp.zeros_like(inputs)
    unit = np.asarray(kind(1.0)(zeros, key=KEY))
    np.testing.assert_allclose(kind(scales)(zeros, key=KEY), unit * np.asarray(scales), rtol=1e-6)


def test_scales_can_be_batched(inputs):
    scales = jnp.array([0.1, 0.7])
    together = jax.vmap(lambda prior: prior(inputs, key=KEY))(Gaussian(scales))
    for scale, found in zip(scales, together, strict=True):
        np.testing.assert_allclose(found, Gaussian(scale)(inputs, key=KEY), rtol=1e-6)


@pytest.fixture(scope="module")
def codes():
    return np.random.default_rng(1).integers(0, 4, (ROWS, 3))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.int32])
def test_flips_of_probability_one_never_keep_the_class(codes, dtype):
    found = FlipCategories(4, 1.0)(jnp.asarray(codes, dtype), key=KEY)
    assert found.dtype == dtype
    assert not (np.asarray(found) == codes).any()
    assert set(np.unique(found)) == {0, 1, 2, 3}


def test_flips_of_probability_zero_keep_every_class(codes):
    np.testing.assert_array_equal(FlipCategories(4, 0.0)(jnp.asarray(codes), key=KEY), codes)


def test_flips_reach_all_other_classes_alike(codes):
    found = np.asarray(FlipCategories(4, 1.0)(jnp.asarray(codes), key=KEY))
    for old in range(4):
        counts = np.bincount(found[codes == old], minlength=4)
        assert counts[old] == 0
        assert stats.chisquare(np.delete(counts, old)).pvalue > 0.01


def test_flips_have_their_probability_in_every_column(codes):
    changed = np.asarray(FlipCategories(4, 0.3)(jnp.asarray(codes), key=KEY)) != codes
    assert np.abs(changed.mean(0) - 0.3).max() < 4 * np.sqrt(0.21 / ROWS)
    # A row's columns flip independently of each other.
    assert np.abs(np.corrcoef(changed.T) - np.eye(3)).max() < 4 / np.sqrt(ROWS)


def test_two_classes_flip_to_each_other():
    bits = np.random.default_rng(1).integers(0, 2, (ROWS, 3))
    np.testing.assert_array_equal(FlipCategories(2, 1.0)(jnp.asarray(bits), key=KEY), 1 - bits)


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_one_hot_stays_one_hot(codes, probability):
    old = codes[:, 0]
    found = np.asarray(FlipCategories(4, probability, one_hot=True)(jnp.eye(4)[old], key=KEY))
    assert set(np.unique(found)) == {0.0, 1.0}
    np.testing.assert_array_equal(found.sum(-1), 1)
    new = found.argmax(-1)
    assert abs((new != old).mean() - probability) <= 4 * np.sqrt(probability * (1 - probability) / ROWS)
    for one in range(4 if probability == 1.0 else 0):
        counts = np.bincount(new[old == one], minlength=4)
        assert stats.chisquare(np.delete(counts, one)).pvalue > 0.01


@pytest.mark.parametrize("classes", [1, 0])
def test_a_category_of_one_class_is_refused(classes):
    with pytest.raises(ValueError, match="two classes"):
        FlipCategories(classes, 0.5)


def test_one_hot_of_another_width_is_refused():
    # A code of three classes cannot stand in four columns: the noised rows would be narrower than the rows.
    with pytest.raises(ValueError, match="3"):
        FlipCategories(3, 0.5, one_hot=True)(jnp.eye(4), key=KEY)


def mixed_columns(inputs):
    """Columns 1 and 3 continuous, 0 and 5 untouched, 2 a code, 4 and 6 to 7 in one-hot code."""
    code = np.random.default_rng(2).integers(0, 3, (ROWS, 2))
    one_hot = np.eye(3)[code[:, 1]]
    columns = [inputs[:, 0], inputs[:, 1], code[:, 0], inputs[:, 2], one_hot[:, 0], inputs[:, 0], *one_hot[:, 1:].T]
    return jnp.asarray(np.stack(columns, axis=1), jnp.float32)


def test_each_group_of_columns_has_its_own_noise(inputs):
    rows = mixed_columns(np.asarray(inputs))
    prior = PerColumn(
        [
            ((1,), Gaussian(0.1)),
            ((3,), Gaussian(0.1)),
            ((2,), FlipCategories(3, 1.0)),
            ((4, 6, 7), FlipCategories(3, 1.0, one_hot=True)),
        ]
    )
    found = np.asarray(prior(rows, key=KEY))
    rows = np.asarray(rows)
    np.testing.assert_array_equal(found[:, [0, 5]], rows[:, [0, 5]])
    noise = found[:, [1, 3]] - rows[:, [1, 3]]
    np.testing.assert_allclose(noise.std(0), 0.1, rtol=0.05)
    # Groups do not share their noise.
    assert abs(np.corrcoef(noise.T)[0, 1]) < 4 / np.sqrt(ROWS)
    assert (found[:, 2] != rows[:, 2]).all()
    np.testing.assert_array_equal(found[:, [4, 6, 7]].sum(-1), 1)
    assert (found[:, [4, 6, 7]].argmax(-1) != rows[:, [4, 6, 7]].argmax(-1)).all()


def test_any_function_can_noise_columns(inputs):
    def double(columns, *, key):
        del key
        return 2 * columns

    found = PerColumn([((2, 0), double)])(inputs, key=KEY)
    np.testing.assert_allclose(found, np.asarray(inputs) * [2, 1, 2])


def test_a_column_with_two_priors_is_refused():
    with pytest.raises(ValueError, match="more than one input prior"):
        PerColumn([((0, 1), Gaussian(0.5)), ((1,), Uniform(0.5))])


def test_a_column_that_is_not_there_is_refused(inputs):
    # Otherwise the prior has no effect, and nothing says so.
    with pytest.raises((ValueError, IndexError), match="3"):
        PerColumn([((0, 3), Gaussian(0.5))])(inputs, key=KEY)


def test_noise_on_some_rows_is_that_of_the_first_ones(inputs):
    np.testing.assert_array_equal(
        NoisedShare(Gaussian(0.5), 0.25)(inputs, key=KEY), Gaussian(0.5)(inputs[:1000], key=KEY)
    )
    assert len(NoisedShare(Gaussian(0.5), 0.01)(inputs[:3], key=KEY)) == 1


def test_rows_from_a_pool_are_drawn_alike_and_whole(inputs):
    pool = np.arange(10, dtype=np.float32)[:, None] * [1.0, 10.0, 100.0]
    found = np.asarray(FromPool(pool)(inputs, key=KEY))
    assert found.shape == inputs.shape
    np.testing.assert_array_equal(found, pool[found[:, 0].astype(int)])
    assert stats.chisquare(np.bincount(found[:, 0].astype(int), minlength=10)).pvalue > 0.01


def test_a_share_of_the_rows_comes_from_the_pool_and_the_others_are_noised(inputs):
    pool = np.full((2, 3), 99.0, np.float32)
    found = np.asarray(FromPool(pool, Gaussian(0.5), 0.3)(inputs, key=KEY))
    drawn = (found == 99.0).all(1)
    assert abs(drawn.mean() - 0.3) < 4 * np.sqrt(0.21 / ROWS)
    np.testing.assert_allclose((found - np.asarray(inputs))[~drawn].std(0), 0.5, rtol=0.05)


def test_a_pool_of_other_columns_or_without_rows_is_refused(inputs):
    with pytest.raises(ValueError, match="the pool has 2 columns, the inputs have 3"):
        FromPool(jnp.zeros((5, 2)))(inputs, key=KEY)
    for shape in ((0, 3), (3,)):
        with pytest.raises(ValueError, match="a pool has rows and columns"):
            FromPool(jnp.zeros(shape))


def test_shaped_noise_has_its_scale_in_every_column():
    """Whatever directions the data has: scales are applied after the rotation."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(ROWS, 2)) @ np.array([[1.0, 0.99, 0.0], [0.0, 0.14, 1.0]])
    rows /= rows.std(0)
    zeros = jnp.zeros((ROWS, 3))
    for scales in ([2.0, 2.0, 2.0], [0.0, 2.0, 1.0], [0.3, 0.0, 0.0], [5.0, 0.1, 1.0], [0.0, 0.0, 0.0]):
        prior = DataShaped(Gaussian(1.0), coloring_matrix(principal_components(rows)), jnp.array(scales), share=1.0)
        noise = np.asarray(prior(zeros, key=KEY))
        np.testing.assert_allclose(noise.std(0), scales, rtol=0.05)
        if scales[0] and scales[1]:  # columns that go together still do
            assert np.corrcoef(noise.T)[0, 1] > 0.95
