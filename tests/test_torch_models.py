"""Losses with models of every kind: what they return, how they are trained, and what is refused."""

import dataclasses
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from ncprior.errors import UserError
from ncprior.torch import (
    BayesianLinear,
    Gaussian,
    MCDropout,
    Mixture,
    NCPLoss,
    OODLoss,
    Prediction,
    Radial,
    Samples,
    prediction_of,
)

softplus = nn.functional.softplus
torch.set_num_threads(1)  # for tensors so small, more only wait for each other


class Net(nn.Module):
    """A small network, with a belief over its last layer or without."""

    def __init__(self, *, belief=True, outputs=1, dropout=0.0, norm=False):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(1, 32),
            nn.BatchNorm1d(32) if norm else nn.Identity(),
            nn.Tanh(),
            nn.Linear(32, 32),
            nn.Tanh(),
            nn.Dropout(dropout) if dropout else nn.Identity(),
        )
        self.mean = BayesianLinear(32, outputs) if belief else nn.Linear(32, outputs)
        self.noise = nn.Linear(32, outputs)

    def forward(self, x):
        features = self.trunk(x)
        noise = softplus(self.noise(features)) + 0.01
        if isinstance(self.mean, BayesianLinear):
            return *self.mean(features)[:1], noise, self.mean(features).std
        return self.mean(features), noise


def net_of(seed=0, **options):
    torch.manual_seed(seed)
    return Net(**options)


def data(rows=20):
    x = torch.linspace(-1, 1, rows)[:, None]
    return x, torch.sin(3 * x)


def shifted(x):
    return x + 0.5


X, Y = data()


# What models return


class Named(NamedTuple):
    noise: torch.Tensor  # in another order
    mean: torch.Tensor


@dataclasses.dataclass
class Record:
    mean: torch.Tensor
    noise: torch.Tensor
    uncertainty: torch.Tensor


class TestOutputs:
    mean, noise, uncertainty = torch.randn(20, 1), torch.rand(20, 1) + 0.1, torch.rand(20, 1) + 0.1

    def value(self, output):
        """The loss of a model that says the same about clean and noised rows."""

        def double(part):
            return torch.cat([part, part]) if isinstance(part, torch.Tensor) and part.ndim and len(part) == 20 else part

        both = output(double)
        return NCPLoss(shifted)(lambda _: both, X, Y)

    def test_point_estimates_in_every_form_are_the_same(self):
        m, n = self.mean, self.noise
        forms = [
            lambda d: (d(m), d(n)),
            lambda d: [d(m), d(n)],
            lambda d: {"noise": d(n), "mean": d(m), "features": None},
            lambda d: Named(d(n), d(m)),
            lambda d: Prediction(d(m), d(n)),
            lambda d: torch.distributions.Normal(d(m), d(n)),
            lambda d: torch.distributions.Independent(torch.distributions.Normal(d(m), d(n)), 1),
            lambda d: (d(m[:, 0]), d(n)),
            lambda d: (d(m), d(n[:, 0])),
        ]
        values = [self.value(form).item() for form in forms]
        np.testing.assert_allclose(values, values[0], rtol=1e-6)

    def test_beliefs_in_every_form_are_the_same(self):
        m, n, u = self.mean, self.noise, self.uncertainty
        forms = [
            lambda d: (d(m), d(n), d(u)),
            lambda d: {"mean": d(m), "noise": d(n), "uncertainty": d(u)},
            lambda d: {"mean": torch.distributions.Normal(d(m), d(u)), "noise": d(n)},
            lambda d: Record(d(m), d(n), d(u)),
            lambda d: Mixture(d(m)[None], d(n)[None], d(u)[None]),
        ]
        values = [self.value(form).item() for form in forms]
        np.testing.assert_allclose(values, values[0], rtol=1e-5)
        assert values[0] != pytest.approx(self.value(lambda d: (d(m), d(n))).item(), rel=0.01)

    @pytest.mark.parametrize("noise", [0.3, torch.tensor(0.3), torch.tensor([0.3])], ids=["number", "scalar", "one"])
    def test_one_noise_for_all_rows(self, noise):
        m = self.mean
        everywhere = self.value(lambda d: (d(m), d(torch.full_like(m, 0.3))))
        torch.testing.assert_close(self.value(lambda d: (d(m), noise)), everywhere)

    def test_targets_and_means_of_one_output_need_not_have_the_same_shape(self):
        net = net_of()
        loss = NCPLoss(shifted)
        torch.testing.assert_close(loss(net, X, Y), loss(net, X, Y[:, 0]))
        flat = lambda x: tuple(part[:, 0] for part in net(x))  # noqa: E731
        torch.testing.assert_close(loss(net, X, Y), loss(flat, X, Y))

    def test_targets_may_have_another_precision(self):
        net, loss = net_of(), NCPLoss(shifted)
        assert loss(net, X, Y.double()).dtype == torch.float32
        torch.testing.assert_close(loss(net, X, Y.double()), loss(net, X, Y))
        assert loss(net.double(), X.double(), Y).dtype == torch.float64


def refused(output, **options):
    return lambda: NCPLoss(shifted, **options)(lambda _: output, X, Y)


ROWS = torch.ones(40, 1)
MISTAKES = {
    "a tensor": (refused(ROWS), "gives a Tensor of shape"),
    "a belief alone": (lambda: NCPLoss(shifted)(BayesianLinear(1, 1), X, Y), "no noise"),
    "no noise": (refused({"mean": ROWS, "std": ROWS}), "no 'noise'"),
    "two uncertainties": (refused((torch.distributions.Normal(ROWS, ROWS), ROWS, ROWS)), "leave one out"),
    "a gamma": (refused(torch.distributions.Gamma(ROWS, ROWS)), "Gamma distribution"),
    "rows": (refused((torch.ones(20, 1), torch.ones(20, 1))), "for 40 rows"),
    "outputs": (refused((torch.ones(40, 3), torch.ones(40, 3))), "3 outputs and the targets have 1"),
    "noise shape": (refused((ROWS, torch.ones(40, 3))), "noise has shape"),
    "integers": (refused((ROWS.long(), ROWS)), "floating-point"),
    "log std": (refused((ROWS, -ROWS)), "noise is not positive"),
    "log uncertainty": (refused((ROWS, ROWS, -ROWS)), "uncertainty is not positive"),
    "x": (lambda: NCPLoss(shifted)(net_of(), X.numpy(), Y), "x must be a tensor, got ndarray"),
    "y": (lambda: NCPLoss(shifted)(net_of(), X, Y[:7]), "same rows"),
    "no rows": (lambda: NCPLoss(shifted)(net_of(), X[:0], Y[:0]), "at least one"),
    "weights": (lambda: NCPLoss(shifted)(net_of(), X, Y, weights=torch.ones(3)), "weights have shape"),
    "device": (lambda: NCPLoss(shifted)(net_of(), X, Y.to("meta")), "x is on cpu and y on meta"),
    "noised rows": (lambda: NCPLoss(lambda x: x[:, 0])(net_of(), X, Y), "the input prior must give"),
    "noise of a point": (lambda: NCPLoss(shifted, noise_tie=1.0)(net_of(belief=False), X, Y), "noise_tie keeps"),
    "noise prior of a point": (
        lambda: NCPLoss(shifted, noise_prior_std=1.0)(net_of(belief=False), X, Y),
        "noise_prior_std keeps",
    ),
    "gamma of rows": (lambda: NCPLoss(shifted, gamma=lambda n: 1 / n)(net_of(), X, Y), "give rows=len"),
    "weight_kl of rows": (lambda: NCPLoss(shifted, weight_kl=1.0)(net_of(), X, Y), "weight_kl is divided by"),
    "weight_kl of a point": (
        lambda: NCPLoss(shifted, weight_kl=1.0, rows=9)(net_of(belief=False), X, Y),
        "BayesianLinear",
    ),
    "weight_kl of a function": (lambda: NCPLoss(shifted, weight_kl=1.0, rows=9)(net_of().forward, X, Y), "nn.Module"),
    "gamma": (lambda: NCPLoss(shifted, gamma=-1.0), "gamma must be"),
    "output_std": (lambda: NCPLoss(shifted, output_std=0.0), "output_std must be positive"),
    "direction": (lambda: NCPLoss(shifted, direction="backward"), "direction must be"),
    "centre": (lambda: NCPLoss(shifted, centre="mean"), "centre must be"),
    "noise_prior_std": (lambda: NCPLoss(shifted, noise_prior_std=0.0), "noise_prior_std must be positive"),
    "rows of a loss": (lambda: NCPLoss(shifted, rows=0), "at least 1"),
    "noise": (lambda: NCPLoss(0.5), "must be an input prior"),
    "few samples": (refused(Samples(ROWS.expand(4, 40, 1), ROWS.expand(4, 40, 1))), "at least 8 samples, got 4"),
    "no logit": (lambda: OODLoss(shifted)(net_of(), X, Y), "no 'ood'"),
    "target when predicting": (lambda: OODLoss(shifted, centre="target"), "no target when predicting"),
    "dropout of a belief": (lambda: MCDropout(Net(dropout=0.1))(X), "uncertainty of its own"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_line(case):
    mistake, message = MISTAKES[case]
    with pytest.raises(UserError, match=message) as caught:
        mistake()
    assert "\n" not in str(caught.value)


def test_without_pytorch_the_import_says_what_to_install():
    code = "import importlib.util\nimportlib.util.find_spec = lambda _: None\nimport ncprior.torch"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.strip().splitlines()[-1].startswith("ImportError: ncprior.torch needs PyTorch")


def test_training_imports_no_jax():
    # Processes that load data are forked from the one that trains, which JAX does not survive.
    code = """
import sys, torch
from ncprior.torch import BayesianLinear, NCPLoss, Radial
layer = BayesianLinear(1, 1)
model = lambda x: (layer(x).mean, torch.ones(len(x), 1), layer(x).std)
NCPLoss(Radial(1.0))(model, torch.zeros(4, 1), torch.zeros(4)).backward()
print(sorted({"jax", "sklearn", "pyarrow"} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


# Options


def test_the_number_of_rows_can_be_given_with_every_batch():
    net, loss = net_of(), NCPLoss(shifted, gamma=lambda n: 10 / n, weight_kl=1.0)
    assert loss.term_weights(20)["ncp"] == 0.5
    few, many = (loss.terms(net, X, Y, rows=rows) for rows in (10, 100))
    torch.testing.assert_close(few["weight_kl"], 10 * many["weight_kl"])
    torch.testing.assert_close(few["ncp"], many["ncp"])
    expected = few["nll"] + few["ncp"] + few["weight_kl"]
    torch.testing.assert_close(loss(net, X, Y, rows=10), expected)


def test_rows_of_weight_0_do_not_count():
    net, loss = net_of(), NCPLoss(shifted, away=True, noise_tie=1.0)
    weights = torch.tensor([1.0] * 15 + [0.0] * 5)
    torch.testing.assert_close(loss(net, X, Y, weights=weights), loss(net, X[:15], Y[:15]), rtol=1e-4, atol=1e-5)


def test_inputs_may_have_any_number_of_axes():
    net, loss = net_of(), NCPLoss(shifted, away=True)
    expected = loss(net, X, Y)
    torch.testing.assert_close(loss(lambda x: net(x[:, None]), X[:, 0], Y), expected)
    torch.testing.assert_close(loss(lambda x: net(x[:, 0, :, 0]), X[:, None, :, None], Y), expected)


def test_a_generator_makes_a_loss_repeatable():
    net = net_of()
    one, two = (NCPLoss(Radial(1.0), generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert one(net, X, Y) == two(net, X, Y)
    assert one(net, X, Y) != NCPLoss(Radial(1.0), generator=torch.Generator().manual_seed(2))(net, X, Y)


def test_centred_at_the_prediction_no_gradient_reaches_the_mean():
    net = net_of()
    terms = NCPLoss(shifted, centre="prediction").terms(net, X, Y)
    terms["ncp"].backward()
    assert net.mean.weight.grad is None or not net.mean.weight.grad.any()
    assert net.mean.rho.grad.any()


def test_without_gradients_and_after_eval_it_is_the_same():
    net, loss = net_of(), NCPLoss(shifted)
    expected = loss(net, X, Y)
    with torch.no_grad():
        torch.testing.assert_close(loss(net.eval(), X, Y), expected)
    with torch.inference_mode():
        torch.testing.assert_close(loss(net, X, Y), expected)


# Batch norm


def test_noised_rows_do_not_enter_the_statistics_of_batch_norm():
    net, plain = net_of(norm=True, belief=False), net_of(norm=True, belief=False)
    terms = NCPLoss(lambda x: x + 100).terms(net, X, Y)
    mean, noise = plain(X)
    expected = -torch.distributions.Normal(mean, noise).log_prob(Y).mean()
    torch.testing.assert_close(terms["nll"], expected)
    norm, other = net.trunk[1], plain.trunk[1]
    torch.testing.assert_close(norm.running_mean, other.running_mean)
    assert norm.num_batches_tracked == 1
    assert norm.training
    together = NCPLoss(lambda x: x + 100, one_pass=True).terms(net_of(norm=True, belief=False), X, Y)
    assert abs(together["nll"] - expected) > 0.01


def test_at_noised_rows_batch_norm_is_that_of_predictions():
    net = net_of(norm=True, belief=False)
    for _ in range(300):
        net(X)  # until the running statistics are those of the rows
    terms = NCPLoss(shifted).terms(net, X, Y)
    in_use = NCPLoss(shifted).terms(net.eval(), X, Y)
    torch.testing.assert_close(terms["ncp"], in_use["ncp"], rtol=1e-3, atol=1e-3)


def test_two_passes_are_one_pass_where_rows_are_independent():
    net = net_of()
    one, two = (NCPLoss(shifted, one_pass=choice).terms(net, X, Y) for choice in (True, False))
    torch.testing.assert_close(one, two)


# Dropout and ensembles


class WithNumber(nn.Module):
    """The same noise for all rows, and one output that has no axis."""

    def forward(self, x):
        return x[:, 0], 0.5


def test_dropout_stays_on_and_draws_are_independent():
    model = MCDropout(net_of(belief=False, dropout=0.5), samples=200).eval()
    assert not model.model.trunk[0].training
    found = model(X[:1].repeat(2, 1))
    assert found.means.shape == found.noises.shape == (200, 2, 1)
    assert abs(torch.corrcoef(found.means[..., 0].T)[0, 1]) < 0.3
    torch.testing.assert_close(found.mean, found.means.mean(0))
    torch.testing.assert_close(found.uncertainty, found.means.std(0))
    off = MCDropout(net_of(belief=False, dropout=0.5).eval())
    assert off(X).uncertainty.min() > 0
    flat = MCDropout(nn.Sequential(nn.Dropout(0.5), WithNumber()))
    assert flat(X).noises.shape == flat(X).means.shape == (8, 20, 1)


def test_an_ensemble_is_a_mixture_of_its_members():
    nets = [net_of(seed) for seed in range(3)]
    params, buffers = stack_module_state(nets)

    def model(x):
        return Mixture(*vmap(lambda p, b: functional_call(nets[0], (p, b), (x,)))(params, buffers))

    found = model(X)
    outputs = [prediction_of(net(X)) for net in nets]
    torch.testing.assert_close(found.mean, torch.stack([one.mean for one in outputs]).mean(0))
    variance = torch.stack([one.mean for one in outputs]).var(0, correction=0)
    variance = variance + torch.stack([one.uncertainty**2 for one in outputs]).mean(0)
    torch.testing.assert_close(found.uncertainty, variance.sqrt())
    loss = NCPLoss(shifted)
    terms = loss.terms(model, X, Y)
    torch.testing.assert_close(terms["nll"], torch.stack([loss.terms(net, X, Y)["nll"] for net in nets]).mean())
    loss.total(terms).backward()
    assert all(value.grad is not None for value in params.values())


def test_members_of_an_ensemble_can_be_trained_side_by_side():
    nets = [net_of(seed) for seed in range(3)]
    params, buffers = stack_module_state(nets)
    loss = NCPLoss(shifted, away=True, noise_tie=1.0)

    def one(params, buffers):
        return loss(lambda x: functional_call(nets[0], (params, buffers), (x,)), X, Y)

    together = vmap(one)(params, buffers)
    torch.testing.assert_close(together, torch.stack([loss(net, X, Y) for net in nets]))
    random = NCPLoss(Radial(1.0))

    def noisy(params, buffers):
        return random.terms(lambda x: functional_call(nets[0], (params, buffers), (x,)), X, Y)["ncp"]

    same = [net_of() for _ in range(2)]
    params, buffers = stack_module_state(same)
    values = vmap(noisy, randomness="different")(params, buffers)
    assert values[0] != values[1]


# Training


GAP = torch.zeros(1, 1)


def gap_data():
    torch.manual_seed(0)
    x = torch.cat([torch.linspace(-2, -1, 30), torch.linspace(1, 2, 30)])[:, None]
    return x, torch.sin(2 * x) + 0.1 * torch.randn(60, 1)


def trained(model, loss, steps=200):
    x, y = gap_data()
    torch.manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model, x, y).backward()
        optimizer.step()
    with torch.no_grad():
        inside, outside = (prediction_of(model.eval()(rows)) for rows in (GAP, x))
    return inside, outside, y


class Ensemble(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.nets = nn.ModuleList(net_of(seed, belief=False) for seed in range(count))

    def forward(self, x):
        return Mixture(*(torch.stack(parts) for parts in zip(*(net(x) for net in self.nets), strict=True)))


# How the model is made, how it is trained, and where its uncertainty shows.
KINDS = {
    "point": (lambda: net_of(belief=False), {"gamma": 0.1}, "noise"),
    "belief": (net_of, {"gamma": 0.1, "noise_tie": 0.1}, "uncertainty"),
    "dropout": (
        lambda: MCDropout(net_of(belief=False, dropout=0.2)),
        {"gamma": 0.03, "noise_tie": 0.03},
        "uncertainty",
    ),
    "ensemble": (lambda: Ensemble(3), {"gamma": 0.1, "noise_tie": 0.1, "direction": "reverse"}, "uncertainty"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_learns_to_be_uncertain_in_a_gap(kind):
    make, options, spread = KINDS[kind]
    without = trained(make(), NCPLoss(Gaussian(1.0), gamma=0.0))
    with_ncp = trained(make(), NCPLoss(Gaussian(1.0), centre="prediction", **options))
    before, after = (float(getattr(found[0], spread)) for found in (without, with_ncp))
    assert after > 2 * before
    # At the data it still predicts what is there, and is surer than in the gap.
    _, outside, y = with_ncp
    assert (outside.mean - y).square().mean().sqrt() < 0.25
    assert float(getattr(outside, spread).mean()) < 0.6 * after


# Compilers, mixed precision, frameworks


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch norm"])
def test_a_whole_step_compiles_without_a_break(norm):
    loss = NCPLoss(shifted, gamma=lambda n: 10 / n, away=True, noise_tie=1.0, weight_kl=1.0, rows=20)
    net, same = net_of(norm=norm), net_of(norm=norm)
    step = torch.compile(lambda x, y: loss(net, x, y), fullgraph=True, backend="aot_eager")
    found, expected = step(X, Y), loss(same, X, Y)
    found.backward()
    expected.backward()
    torch.testing.assert_close(found, expected)
    for one, other in zip(net.parameters(), same.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_a_compiled_model_is_a_model():
    net = net_of()
    compiled = torch.compile(net, backend="aot_eager")
    loss = NCPLoss(shifted, weight_kl=1.0, rows=20)
    torch.testing.assert_close(loss(compiled, X, Y), loss(net, X, Y))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mixed_precision_keeps_the_terms_in_single_precision(dtype):
    net, loss = net_of(), NCPLoss(shifted, away=True, noise_tie=1.0)
    with torch.autocast("cpu", dtype=dtype):
        found = loss(net, X, Y)
    assert found.dtype == torch.float32
    found.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in net.parameters())
    torch.testing.assert_close(found, loss(net, X, Y), rtol=0.05, atol=0.05)


def test_a_model_in_half_precision():
    net, loss = net_of().to(torch.bfloat16), NCPLoss(Radial(1.0), away=True)
    found = loss(net, X.to(torch.bfloat16), Y)
    assert found.dtype == torch.float32
    found.backward()


@pytest.mark.filterwarnings("ignore")  # its own: of versions to come, of few workers
def test_it_is_a_loss_in_lightning(tmp_path):
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.loss = net_of(), NCPLoss(Radial(1.0), gamma=lambda n: 10 / n, rows=60)

        def training_step(self, batch):
            terms = self.loss.terms(self.net, *batch)
            self.log_dict(terms)
            return self.loss.total(terms)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    module = Module()
    before = NCPLoss(shifted)(module.net, *gap_data()).item()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*gap_data()), batch_size=20)
    trainer = lightning.Trainer(
        max_epochs=20,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(module, loader)
    assert {"nll", "ncp"} <= trainer.callback_metrics.keys()
    assert NCPLoss(shifted)(module.net, *gap_data()).item() < before


def test_it_is_a_criterion_in_skorch():
    skorch = pytest.importorskip("skorch", reason="skorch is not installed")

    class NCPNet(skorch.NeuralNetRegressor):
        def train_step_single(self, batch, **_):
            self._set_training(True)
            x, y = batch
            loss = self.criterion_(self.module_, x, y)
            loss.backward()
            return {"loss": loss, "y_pred": None}

    torch.manual_seed(0)
    x, y = (part.numpy() for part in gap_data())
    net = NCPNet(
        Net,
        criterion=NCPLoss,
        criterion__noise=Radial(1.0),
        criterion__gamma=lambda n: 10 / n,
        criterion__rows=60,
        max_epochs=40,
        lr=1e-2,
        optimizer=torch.optim.Adam,
        train_split=None,
        verbose=0,
    )
    net.fit(x, y)
    assert net.history[-1, "train_loss"] < net.history[0, "train_loss"]
    mean, noise, uncertainty = net.forward(x)
    assert mean.shape == noise.shape == uncertainty.shape == y.shape
    assert net.predict(x).shape == y.shape
