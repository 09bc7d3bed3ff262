"""The search: what held-out rows may say, and what they must not reach."""

import jax
import numpy as np
import pyarrow as pa
import pytest

from ncprior import NCPRegressor
from ncprior.data.encoding import Encoder
from ncprior.tables import holdout, search
from ncprior.tables.families import families
from ncprior.tables.held_out import HeldOutPredictions
from ncprior.tables.holdout import Stopping, hold_out
from ncprior.tables.options import FitOptions
from ncprior.tables.programs import Engine
from ncprior.tables.recipe import RowOrder, TrainingRows, make_spec, shift_and_scale

OPTIONS = FitOptions(members=2, hidden=(8,))


def mixed_table(rows=80):
    rng = np.random.default_rng(0)
    number = [None if i % 9 == 0 else value for i, value in enumerate(rng.normal(size=rows).tolist())]
    words = [str(word) for word in rng.choice(["a", "b", "c"], rows)]
    table = pa.table({"number": number, "other": rng.normal(size=rows), "word": words})
    return table, rng.normal(size=(rows, 1))


def training_rows(table, targets, order=None):
    encoder = Encoder.fit(table)
    inputs = encoder.transform(table)
    order = order or RowOrder.of(inputs, targets, None)
    inputs, targets = inputs[order.indices], targets[order.indices]
    return TrainingRows(table, encoder, order, inputs, targets, *shift_and_scale(targets, None))


def member_data(training, held):
    spec = make_spec(OPTIONS, training.encoder, rows=80, outputs=1)
    return spec, search.member_data(training, OPTIONS, spec, held, families=families(2, quantiles=True))


def searched(training, held):
    """The weights of members after some steps without what they hold out, and what they say of it."""
    spec, (rows, tables, _) = member_data(training, held)
    ensemble = Engine.of(spec).ensemble
    rule = Stopping(first=20, max_steps=20)
    weights = ensemble.search(rows, held, tables, np.arange(2), stopping=rule, report=lambda *_: None).weights
    return weights, ensemble.predict_held_out(weights, rows, held)


def test_nothing_of_held_out_rows_reaches_what_members_train_with():
    """Inputs, categories, missing values and targets of held-out rows may be anything: the members are the same."""
    table, targets = mixed_table()
    training = training_rows(table, targets)
    held = hold_out(training.inputs[:, :2], 2, Stopping(), np.random.default_rng(0), per_gap=2)
    out = training.order.indices[np.concatenate([held[0].gap, held[0].random])]
    columns = {name: table[name].to_pylist() for name in table.column_names}
    extreme = targets.copy()
    for row in out:
        columns["number"][row] = 1e6 if columns["number"][row] is None else None
        columns["other"][row] = -1e9
        columns["word"][row] = "c" if columns["word"][row] != "c" else "a"
        extreme[row] = 1e6
    spoiled = training_rows(pa.table(columns), extreme, training.order)
    assert spoiled.encoder != training.encoder
    assert spoiled.scale[0] > 100 * training.scale[0]
    (one, said), (two, other) = searched(training, held), searched(spoiled, held)
    jax.tree.map(np.testing.assert_array_equal, one, two)
    known, other_known = (member_data(some, held)[1].contrast for some in (training, spoiled))
    for member in range(2):
        jax.tree.map(np.testing.assert_array_equal, known.tables[member], other_known.tables[member])
        seen = [np.asarray(data.rows[member].inputs)[held[member].train] for data in (known, other_known)]
        np.testing.assert_array_equal(*seen)
    assert not np.array_equal(said.targets, other.targets)


def test_members_with_units_of_their_own_are_compared_in_one():
    table, targets = mixed_table()
    training = training_rows(table, targets)
    held = hold_out(training.inputs[:, :2], 2, Stopping(), np.random.default_rng(0))
    assert not np.array_equal(held[0].gap, held[1].gap)
    said = searched(training, held)[1]
    truth = (training.targets - training.shift) / training.scale
    np.testing.assert_allclose(said.targets[..., 0], truth[said.indices.reshape(2, -1), 0], atol=1e-5)


def test_an_encoder_that_knows_some_rows_only():
    table = pa.table(
        {"n": [1.0, 2.0, 3.0, None, 100.0], "w": ["a", "b", "a", "b", "c"], "f": [True, True, False, None, True]}
    )
    whole = Encoder.fit(table)
    some = whole.refit(table, np.arange(3))
    assert some.encoder.groups == whole.groups
    matrix = some.transform(table)
    alone = Encoder.fit(table.slice(0, 3)).transform(table.slice(0, 3))
    names = list(whole.names)
    np.testing.assert_array_equal(matrix[:3, names.index("n")], alone[:, 0])
    assert matrix[:, -1].tolist() == [0, 0, 0, 1, 1]  # a missing value, and a category that they lack
    for name in ("n missing", "w = c", "f missing"):
        assert not matrix[:, names.index(name)].any()
    # With all rows it is what it was.
    np.testing.assert_array_equal(whole.refit(table, np.arange(5)).transform(table), whole.transform(table))


def fitted(**arguments):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    return NCPRegressor(members=2, hidden=(4,), random_state=0, **arguments).fit(X, X[:, 0] + rng.normal(size=100))


@pytest.mark.usefixtures("short_search")
@pytest.mark.parametrize(
    ("method", "finder", "calls"), [("bbb+ncp", "best_scales", (0, 2, 4)), ("ncp", "best_exponent", (0, 1, 2))]
)
def test_rows_are_scored_with_what_others_say_of_the_calibration(monkeypatch, method, finder, calls):
    counted = []
    best = getattr(HeldOutPredictions, finder)
    monkeypatch.setattr(
        HeldOutPredictions, finder, lambda self, *args: counted.append(self.counts[0, 1] > 0) or best(self, *args)
    )
    model = fitted(method=method)
    assert model.validation_["rows"] == 10
    first, second, whole = (counted[call] for call in calls)
    assert not (first & second).any()
    np.testing.assert_array_equal(first | second, whole)
    assert first.sum() == second.sum() == 5


@pytest.mark.usefixtures("short_search")
def test_scores_are_of_the_calibration_that_the_model_has(monkeypatch):
    before = fitted(method="bbb+ncp").validation_
    monkeypatch.setattr(search, "refit_noise_factor", lambda *_: 30.0)
    after = fitted(method="bbb+ncp").validation_
    assert after["rmse"] == pytest.approx(before["rmse"], rel=1e-5)
    assert after["nlpd"] > before["nlpd"] + 0.1


def test_what_is_constant_among_the_rows_that_a_member_sees_is_nothing_to_it():
    """A column or a target that varies in held-out rows alone: in any unit the member is told the same."""
    rng = np.random.default_rng(0)
    found = []
    for unit in (1.0, 1e6):
        rare = np.zeros(80)
        rare[0] = unit
        table = pa.table({"number": rng.permutation(80) / 10, "rare": rare})
        training = training_rows(table, rare[:, None])
        held = hold_out(training.inputs[:, :1], 2, Stopping(), np.random.default_rng(0), per_gap=2)
        last = np.flatnonzero(training.order.indices == 0)
        held = [one._replace(random=np.union1d(one.random, last), train=np.setdiff1d(one.train, last)) for one in held]
        held = [one._replace(gap=np.setdiff1d(one.gap, last)) for one in held]
        rows = member_data(training, held)[1].rows
        assert not np.asarray(rows[0].inputs)[:, 1].any()
        found.append(np.asarray(rows[0].targets)[last])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
    assert abs(found[0]) < 20


@pytest.mark.usefixtures("short_search")
def test_both_halves_calibrate_where_only_some_held_out_rows_are_scored(monkeypatch):
    """With every second row scored, as in large tables, no half may be left without any."""
    monkeypatch.setattr(holdout, "_MAX_SCORED", 16)
    seen = []
    real = search.calibrate

    def calibrate(held_out, *rest, **options):
        seen.append((held_out.counts[0, 1] > 0).sum())
        return real(held_out, *rest, **options)

    monkeypatch.setattr(search, "calibrate", calibrate)
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(300, 2))
    NCPRegressor(members=2, hidden=(4,), random_state=0).fit(inputs, inputs[:, 0])
    halves, whole = seen[:2], seen[2]
    assert sum(halves) == whole
    assert min(halves) >= whole / 4
