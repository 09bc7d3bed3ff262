"""Input priors and layers on tensors: noise, what it must leave alone, and what is refused."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from ncprior.errors import UserError
from ncprior.torch import (
    BayesianLinear,
    DataShaped,
    FlipCategories,
    FromPool,
    Gaussian,
    MCDropout,
    NCPLoss,
    NoisedShare,
    PerColumn,
    Radial,
    Uniform,
)

ROWS = 4000
X = torch.from_numpy(np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32))
CODES = torch.from_numpy(np.random.default_rng(1).integers(0, 4, (ROWS, 3)))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def noise_of(prior, inputs=X, seed=0):
    return (prior(inputs, generator=seeded(seed)) - inputs).numpy()


PRIORS = {
    "gaussian": Gaussian(0.5),
    "uniform": Uniform(0.5),
    "radial": Radial([0.1, 0.5, 2.0]),
    "flips": PerColumn([((0,), FlipCategories(4, 0.5)), ((1, 2), Gaussian(1.0))]),
    "shaped": DataShaped(Gaussian(1.0), torch.eye(3)),
    "pool": FromPool(X + 9, Gaussian(0.5)),
}


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_noise_is_a_function_of_the_generator_or_of_the_global_seed(prior):
    inputs = X.clone()
    inputs[:, 0] = CODES[:, 0]
    first, again, other = (prior(inputs, generator=seeded(seed)) for seed in (1, 1, 2))
    assert first.shape == inputs.shape
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    torch.manual_seed(3)
    one = prior(inputs)
    torch.manual_seed(3)
    assert torch.equal(one, prior(inputs))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_noise_has_the_precision_of_the_inputs(prior, dtype):
    assert prior(X[:5].to(dtype)).dtype == dtype


def test_gaussian_noise_is_normal_with_this_std():
    noise = noise_of(Gaussian(0.5))
    assert stats.kstest(noise.ravel(), stats.norm(0, 0.5).cdf).pvalue > 0.01
    assert np.abs(np.corrcoef(noise.T) - np.eye(3)).max() < 4 / np.sqrt(ROWS)


def test_the_scale_of_noise_can_change_while_a_model_is_trained():
    prior = Gaussian(0.5)
    before = noise_of(prior)
    prior.std.fill_(0.1)
    np.testing.assert_allclose(noise_of(prior), before / 5, atol=1e-5)


def test_uniform_noise_fills_two_sigma():
    assert stats.kstest(noise_of(Uniform(0.5)).ravel(), stats.uniform(-1.0, 2.0).cdf).pvalue > 0.01


def test_radial_noise_has_one_radius_for_each_row():
    noise = noise_of(Radial([1.0, 1.0, 0.0]))
    assert (noise[:, 2] == 0).all()
    sizes = np.abs(noise[:, :2])
    # |r| |eps| for one r: the sizes of a row's columns go together, which independent ones would not.
    assert np.corrcoef(np.log(sizes.T))[0, 1] > 0.3
    np.testing.assert_allclose(noise[:, 0].std(), 1.0, rtol=0.1)
    images = torch.zeros(500, 1, 4, 4)
    assert Radial(1.0)(images).shape == images.shape


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_flips_have_their_probability_and_reach_all_other_classes(probability):
    found = FlipCategories(4, probability)(CODES, generator=seeded())
    assert found.dtype == CODES.dtype
    changed = (found != CODES).numpy()
    assert np.abs(changed.mean(0) - probability).max() <= 4 * np.sqrt(0.21 / ROWS) * (0 < probability < 1)
    for old in range(4 if probability == 1.0 else 0):
        counts = np.bincount(found[old == CODES], minlength=4)
        assert stats.chisquare(np.delete(counts, old)).pvalue > 0.01


def test_one_hot_stays_one_hot():
    hot = nn.functional.one_hot(CODES[:, 0], 4).float()
    found = FlipCategories(4, 1.0, one_hot=True)(hot, generator=seeded())
    assert set(found.unique().tolist()) == {0.0, 1.0}
    assert (found.sum(1) == 1).all()
    assert (found.argmax(1) != CODES[:, 0]).all()


def test_each_group_of_columns_has_its_own_noise():
    prior = PerColumn([((2,), Gaussian(0.1)), ((0,), lambda x, generator=None: x + 5)])  # noqa: ARG005
    noise = noise_of(prior)
    np.testing.assert_allclose(noise[:, 0], 5, rtol=1e-5)
    assert (noise[:, 1] == 0).all()
    np.testing.assert_allclose(noise[:, 2].std(), 0.1, rtol=0.05)


def test_noise_in_the_shape_of_the_data():
    rows = X @ torch.tensor([[1.0, 0.99, 0.0], [0.0, 0.14, 0.0], [0.0, 0.0, 1.0]])
    shaped = noise_of(DataShaped.of(rows, Gaussian(1.0), share=1.0))
    np.testing.assert_allclose(np.cov(shaped.T), np.cov(rows.numpy().T), atol=0.08)
    assert np.corrcoef(shaped.T)[0, 1] > 0.95
    some = noise_of(DataShaped.of(rows, Gaussian(1.0), scale=[2.0, 2.0, 0.0], share=0.5))
    assert 0.3 < np.corrcoef(some.T[:2])[0, 1] < 0.7
    assert (some[:, 2] == 0).all()


def test_rows_from_a_pool_are_whole_and_a_share_of_them_is_noised():
    pool = torch.arange(10.0)[:, None] * torch.tensor([1.0, 10.0, 100.0]) + 1000
    drawn = FromPool(pool)(X, generator=seeded())
    numbers = (drawn[:, 0] - 1000).long()
    assert torch.equal(drawn, pool[numbers])
    assert stats.chisquare(np.bincount(numbers)).pvalue > 0.01
    some = FromPool(pool, Gaussian(0.5), 0.3)(X, generator=seeded())
    from_pool = some[:, 0] >= 1000
    assert abs(from_pool.float().mean() - 0.3) < 4 * np.sqrt(0.21 / ROWS)
    np.testing.assert_allclose((some - X)[~from_pool].std(), 0.5, rtol=0.05)


def test_noise_on_some_rows_is_that_of_the_first_ones():
    found = NoisedShare(Gaussian(0.5), 0.25)(X, generator=seeded())
    assert torch.equal(found, Gaussian(0.5)(X[:1000], generator=seeded()))
    assert len(NoisedShare(Gaussian(0.5), 0.01)(X[:3])) == 1


REFUSED = {
    "integers": (lambda: Gaussian(0.5)(CODES), "floating-point"),
    "negative": (lambda: Radial(-1.0), "negative"),
    "one class": (lambda: FlipCategories(1, 0.5), "two classes"),
    "probability": (lambda: FlipCategories(3, 1.5), "between 0 and 1"),
    "one-hot width": (lambda: FlipCategories(4, 0.5, one_hot=True)(X), "4 classes"),
    "column twice": (lambda: PerColumn([((0, 1), Gaussian(1.0)), ((1,), Gaussian(1.0))]), "more than one input prior"),
    "no column": (lambda: PerColumn([((0, 3), Gaussian(1.0))])(X), "no columns"),
    "pool width": (lambda: FromPool(X[:, :2])(X), "rows of the pool"),
    "empty pool": (lambda: FromPool(X[:0]), "pool has rows"),
    "share": (lambda: NoisedShare(Gaussian(1.0), 0.0), "share"),
    "pool target": (lambda: NCPLoss(FromPool(X)), "no target"),
    "pool target of a share": (lambda: NCPLoss(NoisedShare(FromPool(X), 0.5)), "no target"),
    "belief": (lambda: BayesianLinear(2, 1, std=0.0), "positive"),
    "samples": (lambda: MCDropout(nn.Dropout(), 1), "at least 2"),
    "no dropout": (lambda: MCDropout(nn.Linear(1, 1)), "no dropout"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_are_one_line(case):
    mistake, message = REFUSED[case]
    with pytest.raises(UserError, match=message) as caught:
        mistake()
    assert "\n" not in str(caught.value)


def test_priors_are_not_in_a_checkpoint_and_go_to_a_device_with_the_loss():
    loss = NCPLoss(FromPool(X, Radial([1.0, 1.0, 1.0])), centre="prediction").to(torch.float64)
    assert not loss.state_dict()
    assert {buffer.dtype for buffer in loss.buffers()} == {torch.float64}


@pytest.mark.parametrize("bias_belief", [True, False])
def test_drawn_layers_have_the_mean_and_the_spread_of_the_belief(bias_belief):
    torch.manual_seed(0)
    layer, features = BayesianLinear(4, 2, std=0.3, bias_belief=bias_belief), torch.randn(3, 4)
    generator = seeded()
    draws = torch.stack([layer.sample(generator=generator)(features) for _ in range(4000)])
    belief = layer(features)
    assert ((draws.mean(0) - belief.mean).abs() < 5 * belief.std / 4000**0.5).all()
    np.testing.assert_allclose(draws.std(0).detach(), belief.std.detach(), rtol=0.06)
    # The products of the deviations of two rows are the covariance of their means.
    deviations = layer.deviations(features)
    np.testing.assert_allclose((deviations**2).sum(1).sqrt().detach(), belief.std.detach(), rtol=1e-4)
    covariance = torch.cov(draws[:, :, 0].T)[0, 1].detach()
    np.testing.assert_allclose((deviations[0] * deviations[1]).sum(0)[0].detach(), covariance, atol=0.02)


def test_gradients_reach_the_belief_through_a_drawn_layer():
    layer = BayesianLinear(4, 1)
    layer.sample()(torch.randn(3, 4)).sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())
