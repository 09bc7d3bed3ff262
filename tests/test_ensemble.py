"""The parts of the recipe for tables, each against what it should do by arithmetic."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import integrate, stats

from ncprior import NCPRegressor
from ncprior.core.distributions import Normal
from ncprior.core.input_priors import Gaussian
from ncprior.core.methods import methods
from ncprior.core.networks import MLP, Network
from ncprior.core.objectives import Batch, MeanNCP, View
from ncprior.core.optimizers import adam_of_state, averaged, warmed_up
from ncprior.core.output_priors import OutputPrior
from ncprior.core.prediction import MixturePrediction, Prediction, heavy_tailed, mix
from ncprior.core.table_priors import DataShaped, Radial
from ncprior.core.table_terms import AwayFromData, FadesWithLabels, NoiseTie
from ncprior.core.training import Trainer, trained
from ncprior.tables import input_features
from ncprior.tables.calibration import Densities, best_scales, best_share
from ncprior.tables.ensemble import Ensemble, Stretch, TableInfo, TrainingNumbers
from ncprior.tables.holdout import Evaluation, Holdout, Stopping, hold_out, holdout_indices
from ncprior.tables.input_features import (
    FeatureTrunk,
    InputFeatures,
    coloring_matrix,
    principal_components,
    with_input_features,
)
from ncprior.tables.preset import TABLES
from ncprior.tables.recipe import RowOrder, number_of_bins, padded_rows
from ncprior.tables.search import min_search_steps

KEY = jax.random.key(0)
NUMBERS = TrainingNumbers(np.float32(1e-2), None)


def sizes(part):
    return [len(kind) for kind in (part.train, part.gap, part.random)]


def test_gaps_are_the_members_own_and_random_rows_are_shared():
    columns = np.random.default_rng(0).normal(size=(100, 3))
    parts = hold_out(columns, 4, Stopping(gap=0.2, random=0.1), np.random.default_rng(1))
    for part in parts:
        assert sizes(part) == [70, 20, 10]
        assert sorted(np.concatenate([part.train, part.gap, part.random])) == list(range(100))
        np.testing.assert_array_equal(part.random, parts[0].random)
        # The gap is a stretch of one column: no training row lies within it.
        inside = [
            (
                (columns[part.train, i] > columns[part.gap, i].min())
                & (columns[part.train, i] < columns[part.gap, i].max())
            )
            for i in range(3)
        ]
        assert min(some.sum() for some in inside) == 0
    assert len({tuple(part.gap) for part in parts}) > 1
    pairs = hold_out(columns, 5, Stopping(), np.random.default_rng(1), per_gap=2)
    assert [np.array_equal(pairs[0].gap, part.gap) for part in pairs] == [True, True, False, False, False]
    np.testing.assert_array_equal(pairs[2].gap, pairs[3].gap)
    (alone,) = hold_out(np.zeros((50, 0)), 1, Stopping(), np.random.default_rng(0))
    assert sizes(alone) == [45, 0, 5]


def test_equal_rows_that_are_most_of_the_table_are_rows_like_others():
    equal = np.array([0] * 38 + [1] * 2)
    for seed in range(4):
        for part in hold_out(equal[:, None].astype(float), 2, Stopping(), np.random.default_rng(seed), equal=equal):
            assert sizes(part) == [24, 12, 4]


def test_held_rows_keep_their_shape():
    held = [Holdout(np.arange(8), np.array([1, 2]), np.array([5]))]
    numbers, sizes = holdout_indices(held, 1, 64)
    assert numbers.shape == holdout_indices(None, 1, 64)[0].shape == (1, 2, 32)
    assert numbers[0, 0, :2].tolist() == [1, 2]
    assert sizes.tolist() == [[2, 1]]
    many = [Holdout(np.arange(8), np.arange(50_000), np.arange(10))]
    assert holdout_indices(many, 1, 200_000)[1].max() <= 4096


class Played(Ensemble):
    """Members whose held-out rows score as it was said beforehand, and whose weights are their number of steps."""

    def __init__(self, scores):
        self.scores = iter(scores)

    def start(self, *_):
        return 0

    def gather(self, members):
        return members

    def train_and_score(self, members, rows, stretch, holdouts, *, extra):  # noqa: ARG002
        last = stretch.last
        return last, Evaluation(last, np.array([np.nan]), np.array([next(self.scores)]))


@pytest.mark.parametrize(
    ("scores", "best", "evaluations"),
    [
        ([-3, -2, -1, -2, -3, 9], 40, 5),
        ([-3, -2, -2, -2, 9], 20, 4),
        ([-2, -1, -3, -2.9, -2, -0.5, -1, -2, 9], 320, 8),  # no better than at its best, but rising again
        ([-2, -1, -3, -2.998, 9], 20, 4),  # by too little
    ],
)
def test_the_search_ends_when_the_score_is_no_better_and_no_longer_rises(scores, best, evaluations):
    rule = Stopping(first=10, growth=2.0, patience=2, min_steps=40, max_steps=10_000)
    held = [Holdout(np.arange(3), np.arange(0), np.arange(1))]
    found = Played(scores).search([None], held, None, [0], stopping=rule, report=lambda *_: None)
    assert (found.steps, found.weights, len(found.evaluations)) == (best, best, evaluations)


def in_use(*sizes):
    """What rows count of which so many are held out, for two members and both kinds."""
    return (np.arange(3) < np.reshape(sizes, (2, 2, 1))).astype(float)


def test_evaluations_grow_apart_and_scores_weigh_gap_and_random_rows():
    assert Stopping(first=100, growth=2.0, max_steps=700).evaluation_steps() == [100, 200, 400, 700]
    found = Evaluation(1, np.array([-2.0, -4.0]), np.array([-1.0, -1.0]))
    assert found.score(0.5) == -2.0
    assert found.score(0.0) == -1.0
    assert Evaluation(1, np.array([np.nan]), np.array([-1.0])).score(0.5) == -1.0
    density = np.array([[[-1.0, -3.0, 9.0], [-2.0, 9.0, 9.0]], [[-5.0, 9.0, 9.0], [-4.0, 9.0, 9.0]]])[..., None]
    seen = Evaluation.at(7, density, in_use(2, 1, 1, 1))
    assert (seen.step, *seen.gap, *seen.random) == (7, -2.0, -5.0, -2.0, -4.0)
    assert seen.mixture == pytest.approx(np.log((np.exp(-2) + np.exp(-4)) / 2))
    assert seen.score(0.0, 0.25) == pytest.approx(0.75 * -3 + 0.25 * seen.mixture)
    assert np.isnan(Evaluation.at(7, density, in_use(0, 0, 0, 0)).mixture)
    # Outputs are mixed one by one, as predictions are.
    twice = Evaluation.at(7, np.concatenate([density, density[::-1]], axis=3), in_use(1, 1, 1, 1))
    assert twice.mixture == pytest.approx(2 * seen.mixture)


def test_wide_tables_have_fewer_bins():
    assert [number_of_bins(columns) for columns in (0, 1, 32, 64, 100, 1000, 3000)] == [0, 32, 32, 16, 10, 8, 2]


def test_searches_of_wide_tables_may_end_after_fewer_steps():
    numbers = (0, 512, 1024, 2048, 3000, 10**6)
    assert [min_search_steps(number) for number in numbers] == [760, 760, 760, 380, 259, 1]


def test_scales_undo_a_wrong_noise():
    rng = np.random.default_rng(0)
    y = rng.standard_t(5, (1, 4000, 1)).astype(np.float32) * 0.6**0.5
    ones = jnp.ones((1, 4000, 1))
    counts = np.full((1, 4000), 1 / 4000, np.float32)
    for std in (0.4, 0.8, 1.4):
        prediction = Prediction(0 * ones, std * ones, 0.05 * ones)
        noise, _ = best_scales(prediction, y, counts)
        assert noise == pytest.approx(1 / std, rel=0.12)
    assert best_scales(prediction, y, np.zeros((1, 4000), np.float32)) == (1.0, 1.0)


def test_scales_raise_a_small_uncertainty_and_leave_a_large_one():
    """Rows that need none do not undo what others, further from the data, may need."""
    rng = np.random.default_rng(0)
    far = np.arange(4000) % 2
    wanted = np.where(far, 2.0, 0.1)[None, :, None]
    y = (np.hypot(0.5, wanted) * rng.standard_t(5, wanted.shape) * 0.6**0.5).astype(np.float32)
    counts = np.full((1, 4000), 1 / 4000, np.float32)
    for factor, expected in ((0.5, 2.0), (1.0, 1.0), (3.0, 1.0)):
        parts = (jnp.asarray(part, jnp.float32) for part in (0 * wanted, 0.5 + 0 * wanted, factor * wanted))
        assert best_scales(Prediction(*parts), y, counts)[1] == pytest.approx(expected)


def test_rows_have_an_order_of_their_own():
    rng = np.random.default_rng(0)
    inputs, targets = rng.integers(0, 2, (20, 3)).astype(np.float32), rng.normal(size=(20, 1))
    order = rng.permutation(20)
    weights = rng.uniform(0, 9, 20)
    one, two = RowOrder.of(inputs, targets, weights), RowOrder.of(inputs[order], targets[order], weights[order])
    np.testing.assert_array_equal(inputs[one.indices], inputs[order][two.indices])
    np.testing.assert_array_equal(targets[one.indices], targets[order][two.indices])
    np.testing.assert_array_equal(one.weights, two.weights)


def test_heavy_rows_are_several_that_count_as_much_together():
    inputs, targets = np.arange(8.0)[:, None], np.zeros((8, 1))
    weights = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.9, 5.0])
    found = RowOrder.of(inputs, targets, weights)
    assert found.copies.max() == 3
    assert found.first_copies.sum() == 8
    np.testing.assert_allclose(found.weights.mean(), 1, rtol=1e-6)
    sums = np.bincount(found.indices, found.weights)
    np.testing.assert_allclose(sums / sums.sum(), weights / weights.sum(), rtol=1e-6)
    assert found.effective_number(np.arange(len(found.indices))) == pytest.approx(8.0**2 / np.sum(weights**2))
    for times in (2.0, 1e-9):  # only proportions count
        same = RowOrder.of(inputs, targets, times * weights)
        np.testing.assert_array_equal(same.indices, found.indices)
        np.testing.assert_allclose(same.weights, found.weights, rtol=1e-7)
    equal = RowOrder.of(inputs, targets, np.full(8, 0.3))
    assert equal.weights is None
    assert equal.effective_number(np.arange(5)) == 5
    # At most half as many rows again, however uneven the weights.
    uneven = RowOrder.of(inputs, targets, np.array([*[1e-6] * 7, 1.0]))
    assert len(uneven.indices) <= 12


def test_held_out_rows_count_by_their_weights():
    density = np.array([[[-1.0, -3.0], [-2.0, -4.0]]])[..., None]
    counts = np.array([[[3.0, 1.0], [1.0, 3.0]]])
    found = Evaluation.at(1, density, counts)
    assert (found.gap[0], found.random[0], found.mixture) == (-1.5, -3.5, -3.5)
    good, bad = np.array([0.0, -5.0]), np.array([-5.0, 0.0])
    shares = [best_share([Densities(good, bad, np.array(weights), 100.0)]) for weights in ((9.0, 1.0), (1.0, 9.0))]
    assert shares[0] < 0.2
    assert shares[1] > 0.8


def test_averaged_weights_are_those_of_the_last_steps():
    optimizer = averaged(optax.sgd(1.0), share=0.5)
    params = jnp.zeros(())
    state = optimizer.init(params)
    seen = []
    for _ in range(4):
        updates, state = optimizer.update(-jnp.ones(()), state, params)
        params = optax.apply_updates(params, updates)
        seen.append(float(params))
    assert seen == [1, 2, 3, 4]
    # Rates 1, 1, 2/3, 1/2: 1, 2, 2 + 2/3, 3 + 1/3.
    assert float(state.average) == pytest.approx(10 / 3)


def test_warm_up_rises_along_a_line():
    optimizer = warmed_up(optax.sgd(1.0), 4)
    state = optimizer.init(jnp.zeros(()))
    steps = []
    for _ in range(6):
        update, state = optimizer.update(-jnp.ones(()), state)
        steps.append(float(update))
    assert steps == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_radial_noise_has_one_radius_for_each_row():
    noise = Radial(2.0)(jnp.zeros((20_000, 50)), key=KEY)
    size = jnp.linalg.norm(noise, axis=1) / 50**0.5
    assert float(jnp.mean(size**2)) == pytest.approx(4.0, rel=0.05)
    assert float(jnp.quantile(size, 0.1)) < 0.4  # a fixed radius would give 2 for all
    assert float(jnp.quantile(size, 0.95)) > 3.5


def test_shaped_noise_has_the_covariance_of_the_data():
    data = np.random.default_rng(0).normal(size=(5000, 2)) @ np.array([[3.0, 2.9], [0.0, 0.1]])
    noise = DataShaped(Gaussian(1.0), coloring_matrix(principal_components(data)), share=1.0)(
        jnp.zeros((50_000, 2)), key=KEY
    )
    np.testing.assert_allclose(np.cov(np.asarray(noise).T), np.cov(data.T), rtol=0.05)
    plain = DataShaped(Gaussian(1.0), coloring_matrix(principal_components(data)), share=0.0)(
        jnp.zeros((50_000, 2)), key=KEY
    )
    np.testing.assert_allclose(np.cov(np.asarray(plain).T), np.eye(2), atol=0.03)


def test_wide_tables_have_the_largest_components_only(monkeypatch):
    rng = np.random.default_rng(0)
    data = (rng.normal(size=(400, 3)) * [5.0, 3.0, 2.0]) @ rng.normal(size=(3, 40)) + 0.01 * rng.normal(size=(400, 40))
    weights = rng.uniform(0.5, 1.5, 400)
    whole = principal_components(data, weights)
    monkeypatch.setattr(input_features, "_MAX_COMPONENTS", 8)
    few = principal_components(data, weights)
    assert few.directions.shape == (40, 8)
    np.testing.assert_allclose(few.variances[:3], whole.variances[::-1][:3], rtol=1e-3)
    covariance = coloring_matrix(few) @ coloring_matrix(few).T
    np.testing.assert_allclose(covariance, np.cov(data.T, aweights=weights), atol=0.02 * np.abs(covariance).max())
    noise = DataShaped(Gaussian(1.0), coloring_matrix(few), share=1.0)(jnp.zeros((20_000, 40)), key=KEY)
    np.testing.assert_allclose(np.cov(np.asarray(noise).T), covariance, atol=0.05 * np.abs(covariance).max())
    assert InputFeatures.fit(data, 4).whitener.shape == InputFeatures.zeros(40, 4).whitener.shape == (8, 40)
    fewer_rows = principal_components(data[:5])
    assert fewer_rows.directions.shape == (40, 8)
    assert not fewer_rows.directions[:, 5:].any()
    model = NCPRegressor(members=2, epochs=2, hidden=(8,), random_state=0).fit(data[:60], data[:60, 0])
    assert np.isfinite(model.predict(data)).all()


def test_sight_whitens_and_finds_places_in_bins():
    data = np.random.default_rng(0).normal(size=(2000, 2)) @ np.array([[3.0, 2.9], [0.0, 0.1]])
    sight = InputFeatures.fit(data, 4)
    white = data @ np.asarray(sight.whitener).T
    np.testing.assert_allclose(np.cov(white.T), np.eye(2), atol=0.1)
    trunk = FeatureTrunk(sight, (0, 1), lambda x: x)
    features = np.asarray(jax.vmap(trunk)(jnp.asarray(data, jnp.float32)))
    assert features.shape == (2000, 2 + 2 + 8)
    places = features[:, 4:8] / float(sight.quantile_scale)
    # All bins below a row's own are full and all above empty, so their sum is its quantile.
    ranks = stats.rankdata(data[:, 0]) / 2000
    np.testing.assert_allclose(places.sum(1) / 4, ranks, atol=0.15)  # straight lines within a bin
    columns = trunk(jnp.asarray(data, jnp.float32).T)
    np.testing.assert_allclose(columns.T, features, atol=1e-5)
    few = InputFeatures.fit(np.array([[0.0], [1.0], [1.0]]), 8)
    assert np.isfinite(np.asarray(jax.vmap(FeatureTrunk(few, (0,), lambda x: x))(jnp.array([[0.0], [5.0]])))).all()


def test_input_features_are_not_trained():
    data = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    rows = padded_rows(data, data[:, :1], RowOrder.of(data, data[:, :1], None))
    method = with_input_features(methods(dataclasses.replace(TABLES, hidden=(8,)), None)["bbb+ncp"], (0, 1, 2), 4)
    ensemble = Ensemble(
        Trainer(method, averaged(warmed_up(adam_of_state(1e-2, clip=None, epsilon_hat=True), 5)), 16), 3, 1
    )
    features = InputFeatures.fit(data, 4)
    members = ensemble.start(rows, [np.arange(64)], [TableInfo(features, None, NUMBERS)], [0])
    moved = trained(members[0].params)
    assert not jax.tree.leaves(moved.trunk.features)
    # The gradients' two running means and the average of the weights are those of what is trained, and no more.
    kept = [leaf.shape for leaf in jax.tree.leaves(members[0].optimizer) if leaf.ndim > 1]
    assert sorted(kept) == sorted(3 * [leaf.shape for leaf in jax.tree.leaves(moved)])
    before = ensemble.gather(members)
    members = ensemble.train(members, rows, Stretch(64, 0, 20))
    after = ensemble.gather(members)
    jax.tree.map(lambda given, own: np.testing.assert_array_equal(given, own[0]), features, after.trunk.features)
    assert not np.array_equal(after.trunk.trunk.layers[0].kernel, before.trunk.trunk.layers[0].kernel)
    (again,) = ensemble.start(rows, [np.arange(64)], [TableInfo(None, None, NUMBERS)], [1], after)
    assert [leaf.shape for leaf in jax.tree.leaves(again.optimizer) if leaf.ndim > 1] == kept
    jax.tree.map(lambda given, own: np.testing.assert_array_equal(given, own[0]), features, again.params.trunk.features)


def test_without_sharp_sight_places_count_for_nothing():
    data = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    sharp = InputFeatures.fit(data, 4)
    trunk = MLP.init(2 + 2 + 8, (5, 3), key=KEY)
    blunt = FeatureTrunk(eqx.tree_at(lambda sight: sight.quantile_scale, sharp, jnp.zeros(())), (0, 1), trunk)
    nothing = jax.vmap(lambda row: trunk(blunt.expand(row)))(data)
    for features in (jax.vmap(blunt)(data), blunt(data.T).T):
        np.testing.assert_allclose(features, nothing, rtol=1e-5, atol=1e-6)
    seeing = FeatureTrunk(sharp, (0, 1), trunk)
    np.testing.assert_allclose(jax.vmap(seeing)(data), jax.vmap(lambda row: trunk(seeing.expand(row)))(data), atol=1e-6)
    assert np.abs(jax.vmap(seeing)(data) - nothing).max() > 0.1


def test_shares_go_to_the_better_prediction():
    rng = np.random.default_rng(0)
    same = rng.normal(size=500)
    assert best_share([Densities(same, same)]) == pytest.approx(0.5, abs=0.02)
    good, bad = np.zeros(500), np.full(500, -5.0)
    assert best_share([Densities(bad, good)]) > 0.9
    assert best_share([Densities(good, bad)]) < 0.1
    # Kinds of rows count the same, however many rows they have.
    assert best_share([Densities(good[:10], bad[:10]), Densities(bad, good)]) == pytest.approx(0.5, abs=0.02)
    # One row alone says little.
    assert best_share([Densities(bad[:1], good[:1])]) < 0.75
    # A difference of a hundredth of a nat is no reason to do without half of the members.
    assert 0.5 < best_share([Densities(good, good + 0.01)]) < 0.6
    assert best_share([]) == pytest.approx(0.5, abs=0.02)


def view_of(noised, targets, inputs=None, noised_inputs=None, clean=None, visible=100):
    rows = len(targets)
    inputs = jnp.zeros((rows, 1)) if inputs is None else inputs
    batch = Batch(inputs, targets, jnp.ones(rows), jnp.asarray(visible))
    return View(Network(lambda x: x, {}), batch, inputs, clean or {}, noised, KEY, noised_inputs)


def test_terms_that_are_priors_fade_and_the_tie_holds_the_noise():
    targets = jnp.zeros((2, 1))
    view = view_of({"mean": Normal(targets + 1.0, targets + 0.5)}, targets)
    term = MeanNCP(OutputPrior(1.0))
    np.testing.assert_allclose(FadesWithLabels(term)(view), term(view) / 100)
    same = view_of({"noise": targets + 0.3}, targets, clean={"noise": targets + 0.3})
    np.testing.assert_allclose(NoiseTie()(same), 0, atol=1e-7)
    other = view_of({"noise": targets + 0.6}, targets, clean={"noise": targets + 0.3})
    np.testing.assert_allclose(NoiseTie()(other), np.log(2) + 0.5 * (0.25 - 1), rtol=1e-5)


def test_noise_that_lands_on_the_data_does_not_count():
    inputs = jnp.arange(8.0)[:, None]  # the nearest row is 1 away
    noised = inputs.at[0].set(-100.0).at[1].set(1.0).at[2].set(9.0)
    view = view_of({}, jnp.zeros((8, 1)), inputs, noised)
    count = AwayFromData(lambda view: jnp.ones(len(view.batch.inputs)))(view)
    np.testing.assert_allclose(count[:3], [1.0, 0.0, 1 - np.exp(-2.0)], atol=1e-5)
    # Rows that only fill up the batch are no data.
    weights = jnp.ones(8).at[1].set(0)
    alone = view._replace(batch=view.batch._replace(weights=weights))
    assert float(AwayFromData(lambda _: jnp.ones(8))(alone)[1]) > 0.1


def test_copies_have_no_distance_however_they_are_rounded():
    rows = 3 * jax.random.normal(KEY, (4, 40)) + 7
    inputs = jnp.concatenate([rows, rows])
    view = view_of({}, jnp.zeros((8, 1)), inputs, inputs.at[0].add(1e-2))
    count = AwayFromData(lambda view: jnp.ones(len(view.batch.inputs)))(view)
    np.testing.assert_allclose(count, [1.0, *[0.0] * 7], atol=1e-6)


def test_members_count_by_their_shares():
    members = Prediction(jnp.array([[[0.0]], [[2.0]]]), jnp.ones((2, 1, 1)), jnp.zeros((2, 1, 1)))
    whole = mix(members, jnp.array([0.75, 0.25]))
    np.testing.assert_allclose(whole.weights, [[[0.75, 0.25]]])
    np.testing.assert_allclose(whole.mean, [[0.5]])
    np.testing.assert_allclose(whole.uncertainty**2, [[0.75]])


def test_mixtures_of_members_and_of_mixtures():
    members = Prediction(jnp.array([[[0.0]], [[2.0]]]), jnp.ones((2, 1, 1)), jnp.zeros((2, 1, 1)))
    whole = mix(members)
    assert whole.weights.shape == (1, 1, 2)
    assert (float(whole.mean[0, 0]), float(whole.noise[0, 0]), float(whole.uncertainty[0, 0])) == (1.0, 1.0, 1.0)
    parts = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), whole)
    again = mix(MixturePrediction(parts.weights, parts.parts))
    assert again.weights.shape == (1, 1, 4)
    np.testing.assert_allclose(again.log_prob(jnp.array([[0.5]])), whole.log_prob(jnp.array([[0.5]])), rtol=1e-6)
    wide = whole.inflate(2.0, 3.0)
    assert float(wide.noise[0, 0]) == 2.0


def test_heavy_tails_are_those_of_a_student_t_with_the_same_moments():
    normal = Prediction(jnp.full((1, 1), 3.0), jnp.full((1, 1), 0.6), jnp.full((1, 1), 0.8))
    heavy = heavy_tailed(normal)
    for name in ("mean", "noise", "uncertainty", "std"):
        np.testing.assert_allclose(getattr(heavy, name), getattr(normal, name), rtol=1e-5)
    student = stats.t(5, 3.0, 0.6**0.5)
    grid = np.linspace(-12, 18, 3001)
    density = np.exp(np.asarray(heavy.log_prob(jnp.asarray(grid, jnp.float32)[:, None]))[:, 0].astype(float))
    truth = student.pdf(grid)
    divergence = integrate.simpson(truth * (np.log(truth) - np.log(density + 1e-30)), x=grid)
    assert 0 <= divergence < 1e-3


def test_the_preset_for_tables_makes_every_method():
    assert set(methods(TABLES)) == {"det", "det+ncp", "bbb", "bbb+ncp", "odc+ncp"}
    assert set(methods(TABLES)["bbb+ncp"].objective) == {"nll", "ncp", "noise_tie", "weight_kl"}
