"""Campaigns: rows are asked for and told, late, wrong, twice or never, on SQLite and on PostgreSQL."""

import csv
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import func, select

from ncprior.campaigns import Campaign, people, schema
from ncprior.campaigns.database import REVISION, Database, network_file_system
from ncprior.campaigns.labels import Telling
from ncprior.campaigns.pool_update import update_pool
from ncprior.campaigns.predicted import Predicted
from ncprior.campaigns.results import read_results
from ncprior.campaigns.spec import Spec
from ncprior.campaigns.training import NCPModel, Ranked
from ncprior.campaigns.worker import work
from ncprior.errors import UserError


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self):
        self.time = datetime(2026, 3, 1, 8, tzinfo=UTC)

    def __call__(self):
        return self.time

    def wait(self, **length):
        self.time += timedelta(**length)


class Means:
    """A model that predicts the average of the labels, and wants rows with a large x."""

    def __init__(self, targets, spec, seed):
        self.targets, self.spec, self.seed = targets, spec, seed
        self.known = None

    def predict(self, inputs):
        return {
            name: [Predicted.normal(float(values.mean()), 0.5, 1.0)] * inputs.num_rows
            for name, values in zip(self.spec.targets, self.targets.T, strict=True)
        }

    def rank(self, candidates, known, count, excluded):
        self.known = known
        Means.last = self
        x = np.where(excluded, -np.inf, candidates["x"].to_numpy())
        rows = np.argsort(-x, kind="stable")[:count]
        return Ranked(rows, x[rows])

    def content(self):
        return f"{self.seed}".encode()

    def metrics(self):
        return {"seed": self.seed}


def train(_, targets, spec, seed, unlabelled=None):
    Means.unlabelled = unlabelled
    return Means(targets, spec, seed)


def write_pool(folder, rows=60, name="pool.parquet"):
    generator = np.random.default_rng(0)
    table = pa.table(
        {
            "sample": [f"s{i}" for i in range(rows)],
            "x": generator.permutation(rows).astype(float),
            "kind": [("a", "b", None)[i % 3] for i in range(rows)],
        }
    )
    pq.write_table(table, folder / name)
    return folder / name


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make(storage, tmp_path, clock):
    """Makes a campaign over 60 rows, with changes of what it is like."""
    database = Database(storage, create=True)

    def made(name="first", *, rows=60, **changes):
        given = {"pool": write_pool(tmp_path, rows), "id": "sample", "target": "y"} | changes
        return Campaign.create(name, storage=database, now=clock, **given)

    yield made
    database.close()


@pytest.fixture
def campaign(make):
    return make()


def ids(asked):
    return [row.id for row in asked.rows]


def state(campaign, row):
    query = select(schema.item.c.state).where(schema.item.c.row_key == row)
    return campaign.database.read(lambda connection: connection.execute(query).scalar())


def entries(campaign):
    query = select(func.count()).select_from(schema.label)
    return campaign.database.read(lambda connection: connection.execute(query).scalar())


def test_nobody_gets_a_row_that_another_holds(campaign):
    everything = [row for person in ("ann", "bob", "cy") for row in ids(campaign.ask(20, person=person))]
    assert len(set(everything)) == 60
    nothing = campaign.ask(3, person="dan")
    assert nothing.rows == []
    assert "nothing else in the pool" in nothing.notices[-1]


def test_asked_rows_come_with_their_inputs(campaign, tmp_path):
    table = {row["sample"]: row for row in pq.read_table(tmp_path / "pool.parquet").to_pylist()}
    for row in campaign.ask(10, person="ann").rows:
        assert row.inputs == {name: table[row.id][name] for name in ("x", "kind")}


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
def test_the_first_rows_are_spread_over_the_pool(campaign):
    x = sorted(row.inputs["x"] for row in campaign.ask(8, person="ann").rows)
    assert x[0] < 15
    assert x[-1] >= 45
    assert max(b - a for a, b in pairwise(x)) < 25


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
def test_the_same_seed_asks_for_the_same_rows(make):
    first, second, other = make("a"), make("b"), make("c", seed=1)
    assert ids(first.ask(5, person="ann")) == ids(second.ask(5, person="ann"))
    assert ids(first.ask(5, person="ann")) != ids(other.ask(5, person="ann"))


def test_a_lease_that_is_over_gives_the_row_to_others(campaign, clock):
    mine = set(ids(campaign.ask(60, person="ann", lease="2d")))
    clock.wait(days=1, hours=23)
    assert campaign.ask(1, person="bob").rows == []
    clock.wait(hours=2)
    assert set(ids(campaign.ask(60, person="bob"))) == mine
    assert campaign.held("ann") == []


def test_a_late_label_is_taken_and_the_present_holder_is_told(campaign, clock):
    [row] = ids(campaign.ask(1, person="ann", lease="1d"))
    clock.wait(days=2)
    everything = ids(campaign.ask(60, person="bob"))
    assert row in everything
    assert campaign.tell(row, 3.5, person="ann").outcome == "new"
    assert row not in [one.id for one in campaign.held("bob")]
    [notice] = campaign.tell(everything[0] if everything[0] != row else everything[1], 1.0, person="bob").notices
    assert row in notice
    assert "told by ann" in notice
    assert campaign.tell(everything[-1] if everything[-1] != row else everything[-2], 1.0, person="bob").notices == []


def test_a_label_that_comes_after_the_next_holder_has_told_is_kept_beside_theirs(campaign, clock, tmp_path):
    [row] = ids(campaign.ask(1, person="ann", lease="1d"))
    clock.wait(days=2)
    campaign.ask(60, person="bob")
    campaign.tell(row, 3.0, person="bob")
    assert campaign.tell(row, 5.0, person="ann").outcome == "new"
    campaign.export(tmp_path / "labels.parquet")
    [exported] = pq.read_table(tmp_path / "labels.parquet").to_pylist()
    assert exported["y"] == 4.0
    assert exported["person"] == "bob, ann"


def test_the_same_key_twice_is_one_label(campaign):
    [row, other] = ids(campaign.ask(2, person="ann"))
    assert campaign.tell(row, 3.5, person="ann", key="k1").outcome == "new"
    assert campaign.tell(row, 3.5, person="ann", key="k1").outcome == "known"
    assert entries(campaign) == 1
    for again in ({"id": other, "value": 3.5}, {"id": row, "value": 4.0}):
        with pytest.raises(UserError, match="'k1' was used for another label"):
            campaign.tell(**again, person="ann", key="k1")
    assert entries(campaign) == 1


def test_another_value_is_refused_with_the_way_to_correct_it(campaign):
    [row] = ids(campaign.ask(1, person="ann"))
    campaign.tell(row, 3.5, person="ann")
    assert campaign.tell(row, 3.5, person="ann").outcome == "known"  # said again, without a key
    with pytest.raises(UserError, match=f"ncprior campaign correct first --id {row} --value 4 --person ann"):
        campaign.tell(row, 4.0, person="ann")
    with pytest.raises(UserError, match="ncprior campaign correct"):
        campaign.tell(row, 4.0, person="a stranger")
    assert entries(campaign) == 1


def test_a_correction_supersedes_and_the_history_keeps_both(campaign, clock, tmp_path):
    [row] = ids(campaign.ask(1, person="ann"))
    campaign.tell(row, 3.5, person="ann")
    clock.wait(days=1)
    campaign.correct(row, 3.9, person="bob", note="scale was wrong")
    clock.wait(days=1)
    campaign.correct(row, 4.1, person="ann", key="c2")
    assert campaign.correct(row, 4.1, person="ann", key="c2").outcome == "known"
    told = [(event.what, event.person, event.value) for event in campaign.history(row) if event.value is not None]
    assert told == [("told", "ann", 3.5), ("corrected", "bob", 3.9), ("corrected", "ann", 4.1)]
    campaign.export(tmp_path / "now.parquet")
    campaign.export(tmp_path / "all.parquet", history=True)
    assert pq.read_table(tmp_path / "now.parquet")["y"].to_pylist() == [4.1]
    everything = pq.read_table(tmp_path / "all.parquet")
    assert everything["value"].to_pylist() == [3.5, 3.9, 4.1]
    first, second, _ = everything["entry"].to_pylist()
    assert everything["supersedes"].to_pylist() == [None, first, second]


def test_who_told_a_label_that_others_corrected_does_not_tell_it_again(campaign):
    [row] = ids(campaign.ask(1, person="ann"))
    campaign.tell(row, 3.5, person="ann")
    campaign.correct(row, 3.9, person="bob")
    assert campaign.tell(row, 3.9, person="ann").outcome == "known"
    with pytest.raises(UserError, match=r"has the y 3\.9 already"):
        campaign.tell(row, 3.5, person="ann")
    assert entries(campaign) == 2


def test_there_must_be_something_to_correct(campaign):
    [row] = ids(campaign.ask(1, person="ann"))
    with pytest.raises(UserError, match="no label of 'y' to correct"):
        campaign.correct(row, 1.0, person="ann")


def test_skipped_and_failed_rows_are_different_and_not_asked_for_again(campaign):
    skipped, failed, back = ids(campaign.ask(3, person="ann"))
    campaign.skip(skipped, person="ann", note="not in the freezer")
    campaign.fail(failed, person="ann", note="broke")
    campaign.release(back, person="ann")
    status = campaign.status()
    assert (status.skipped, status.failed, status.out) == (1, 1, 0)
    left = ids(campaign.ask(60, person="bob"))
    assert back in left
    assert not {skipped, failed} & set(left)
    assert "not in the freezer" in [event.note for event in campaign.history(skipped)]
    campaign.tell(failed, 2.0, person="ann")  # found after all
    assert campaign.status().failed == 0
    with pytest.raises(UserError, match="is labelled"):
        campaign.skip(failed, person="ann")


def test_only_the_holder_or_an_owner_gives_a_row_back(campaign):
    [row] = ids(campaign.ask(1, person="ann"))
    for give_up in (campaign.release, campaign.skip, campaign.fail):
        with pytest.raises(UserError, match="out with 'ann'"):
            give_up(row, person="bob")
    campaign.database.write(lambda c: people.add_token(c, "olga", "owner", campaign.now()))
    campaign.release(row, person="olga")
    assert campaign.held("ann") == []
    assert "released by olga" in campaign.ask(1, person="ann").notices[0]


def test_a_lease_can_be_extended(campaign, clock):
    [row] = ids(campaign.ask(1, person="ann", lease="1d"))
    clock.wait(hours=20)
    assert campaign.extend(row, person="ann", lease="2d") == clock() + timedelta(days=2)
    clock.wait(days=1)
    assert [one.id for one in campaign.held("ann")] == [row]


def test_rows_that_nobody_asked_for_can_be_told(campaign):
    assert campaign.tell("s7", 1.5, person="ann").outcome == "new"
    assert state(campaign, "s7") == "labelled"
    assert "s7" not in ids(campaign.ask(60, person="bob"))
    with pytest.raises(UserError, match="'s999' is not in the pool; to tell it all the same, give its inputs"):
        campaign.tell("s999", 1.5, person="ann")
    with pytest.raises(UserError, match="no value for the input 'kind'"):
        campaign.tell("s999", 1.5, person="ann", inputs={"x": 1.0})
    with pytest.raises(UserError, match="'much' is no value of the input 'x'"):
        campaign.tell("s999", 1.5, person="ann", inputs={"x": "much", "kind": None})
    campaign.tell("s999", 1.5, person="ann", inputs={"x": 3.0, "kind": "a"})
    assert campaign.status().labelled == 2


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "high", None, True, 1e31, [1.0]])
def test_only_numbers_are_labels(make, value):
    campaign = make()
    with pytest.raises(UserError, match="is no value of 'y'"):
        campaign.tell("s1", value, person="ann")
    assert entries(campaign) == 0


def test_targets_may_come_one_by_one(make):
    campaign = make(target=["y", "z"])
    [row] = ids(campaign.ask(1, person="ann"))
    with pytest.raises(UserError, match="several targets"):
        campaign.tell(row, 1.0, person="ann")
    assert campaign.tell(row, {"y": 1.0}, person="ann").missing == ["z"]
    assert state(campaign, row) == "asked"
    assert [one.id for one in campaign.held("ann")] == [row]
    assert campaign.tell(row, {"z": 2.0}, person="ann").missing == []
    assert state(campaign, row) == "labelled"
    assert campaign.held("ann") == []


def test_replicates_are_asked_of_another_person_and_their_spread_is_shown(make, tmp_path):
    campaign = make(replicates=2)
    [row] = ids(campaign.ask(1, person="ann"))
    campaign.tell(row, 1.0, person="ann")
    assert row not in ids(campaign.ask(1, person="ann"))
    assert ids(campaign.ask(1, person="bob")) == [row]
    assert row not in ids(campaign.ask(1, person="cy"))
    campaign.tell(row, 1.5, person="bob")
    with pytest.raises(UserError, match="already"):
        campaign.tell(row, 9.0, person="cy")
    campaign.export(tmp_path / "labels.parquet")
    [exported] = pq.read_table(tmp_path / "labels.parquet").to_pylist()
    assert (exported["y"], exported["y_spread"]) == (1.25, 0.5)


def test_a_budget_ends_the_asking(make):
    campaign = make(budget=3)
    rows = ids(campaign.ask(2, person="ann"))
    asked = campaign.ask(5, person="bob")
    assert len(asked.rows) == 1
    assert "budget of 3" in asked.notices[-1]
    with pytest.raises(UserError, match="the budget of 3 rows is spent"):
        campaign.ask(1, person="cy")
    for row in (*rows, *ids(asked)):
        campaign.tell(row, 1.0, person="ann")
    assert campaign.status().done
    campaign.change(budget=4)
    assert len(campaign.ask(5, person="cy").rows) == 1


def test_labels_that_are_known_at_the_beginning(make, tmp_path):
    table = tmp_path / "known.csv"
    table.write_text("sample,x,kind,y\ns1,1,a,5.5\ns2,2,b,\nextra,3.5,c,7\n")
    campaign = make(labelled=table, budget=10)
    status = campaign.status()
    assert (status.labelled, status.spent) == (2, 0)
    assert not {"s1", "extra"} & set(ids(campaign.ask(10, person="ann")))


def label_all(campaign, rows, person="ann"):
    for row in rows:
        campaign.tell(row, 1.0, person=person)


def test_from_twenty_labels_on_rows_come_from_the_newest_model(make):
    campaign = make(audit=0.0)
    label_all(campaign, ids(campaign.ask(19, person="ann")))
    assert work(campaign, train) is None
    label_all(campaign, ids(campaign.ask(1, person="ann")))
    worked = work(campaign, train)
    assert (worked.rows, worked.queued) == (20, 40)
    assert work(campaign, train) is None  # nothing new
    x = [row.inputs["x"] for row in campaign.ask(5, person="ann").rows]
    assert x == sorted(x, reverse=True)
    free = set(range(60)) - {row["x"] for row in labelled_inputs(campaign)}
    assert x == sorted(free, reverse=True)[:5]


def labelled_inputs(campaign):
    query = select(schema.item.c.inputs).where(schema.item.c.state == "labelled")
    return campaign.database.read(lambda connection: list(connection.execute(query).scalars()))


def test_rows_that_are_out_count_as_known_and_are_not_picked(make):
    campaign = make()
    label_all(campaign, ids(campaign.ask(20, person="ann")))
    out = campaign.ask(3, person="bob")
    work(campaign, train)
    known = Means.last.known.to_pylist()
    assert len(known) == 23
    assert all(row.inputs in known for row in out.rows)
    assert not set(ids(campaign.ask(37, person="cy"))) & set(ids(out))


def test_a_queue_that_runs_dry_says_so(make):
    campaign = make(audit=0.0, rows=400)
    label_all(campaign, ids(campaign.ask(20, person="ann")))
    work(campaign, train)
    assert campaign.ask(200, person="ann").notices == []
    dry = campaign.ask(5, person="bob")
    assert len(dry.rows) == 5
    assert "has run dry: 5 rows were drawn at random" in dry.notices[0]


def test_a_queue_that_runs_low_is_filled_again_by_the_same_model(make):
    campaign = make(audit=0.0, rows=400)
    label_all(campaign, ids(campaign.ask(20, person="ann")))
    work(campaign, train)
    campaign.ask(180, person="ann")
    worked = work(campaign, load=lambda content, spec, seed: Means(np.ones((1, 1)), spec, int(content) + 0 * seed))
    assert (worked.trained, worked.model, worked.queued) == (False, 1, 200)
    assert campaign.ask(190, person="bob").notices == []


def test_the_audit_share_is_drawn_at_random_and_not_shown(make):
    campaign = make(audit=0.25, rows=400)
    label_all(campaign, ids(campaign.ask(20, person="ann")))
    work(campaign, train)
    asked = [row for _ in range(30) for row in campaign.ask(5, person="ann").rows]
    query = select(schema.item.c.inputs).join(schema.lease, schema.lease.c.item == schema.item.c.id)
    audits = campaign.database.read(lambda c: list(c.execute(query.where(schema.lease.c.audit)).scalars()))
    assert 20 <= len(audits) <= 56  # of 150, three standard deviations
    assert abs(np.mean([row["x"] for row in audits]) - 200) < 60  # the model wants those above 250
    assert all(set(row.inputs) == {"x", "kind"} and len(row) == 3 for row in asked)


def test_audit_rows_are_scored_by_what_was_predicted_before_their_label(make):
    campaign = make(audit=1.0, rows=100)
    label_all(campaign, ids(campaign.ask(20, person="ann")))
    work(campaign, train)  # predicts 1.0
    for row in ids(campaign.ask(30, person="ann")):
        campaign.tell(row, 3.0, person="ann")
    work(campaign, train)  # has seen them, and predicts 2.2
    [audit] = campaign.status().audits
    assert audit.present.rows == 10
    assert [point.rows for point in audit.curve] == [10, 10, 10]
    assert audit.present.rmse == pytest.approx(2.0)
    assert audit.present.coverage == 0.0
    std = np.hypot(0.5, 1.0)
    assert audit.present.nlpd == pytest.approx(0.5 * (2 / std) ** 2 + np.log(std * np.sqrt(2 * np.pi)), rel=1e-4)
    campaign.correct(row, 5.0, person="ann")  # still by the prediction before its first label
    assert campaign.status().audits[0].present.rmse == pytest.approx(np.sqrt((9 * 4 + 16) / 10), rel=1e-4)


@pytest.mark.parametrize("unlabelled", [True, False])
def test_models_know_the_inputs_of_the_pool(make, unlabelled, tmp_path):
    campaign = make(unlabelled=unlabelled)
    label_all(campaign, ids(campaign.ask(20, person="ann")))
    work(campaign, train)
    found = Means.unlabelled
    assert (found is not None) == unlabelled
    if unlabelled:
        pool = pq.read_table(tmp_path / "pool.parquet")
        assert found["x"].to_pylist() == pool["x"].to_pylist()
        assert found.column_names == ["x", "kind"]


def test_methods_that_cannot_know_the_pool_train_without_it():
    spec = Spec("id", ("y",), {"x": "number"}, fit={"method": "det", "members": 1, "hidden": (4,), "epochs": 1})
    inputs = pa.table({"x": np.arange(20.0)})
    model = NCPModel.train(inputs, np.arange(20.0)[:, None], spec, 0, inputs)
    assert model.estimator.fitted_.unlabelled == 0


def test_a_worker_that_dies_is_replaced(campaign, clock):
    label_all(campaign, ids(campaign.ask(20, person="ann")))

    def die(*_):
        raise SystemExit("killed")

    def trains_beside(inputs, targets, spec, seed, unlabelled):
        assert work(campaign, train) is None  # one worker at a time
        return train(inputs, targets, spec, seed, unlabelled)

    values = {"campaign": campaign.id, "labels_through": 20, "labels": 20, "metrics": {}, "state": "training"}
    claim = schema.model.insert().values(**values, started_at=clock(), heartbeat=clock())
    campaign.database.write(lambda connection: connection.execute(claim))  # as a killed worker leaves it
    assert work(campaign, train) is None
    clock.wait(minutes=3)
    with pytest.raises(SystemExit):
        work(campaign, die)
    assert work(campaign, trains_beside).trained
    states = campaign.database.read(lambda c: c.execute(select(schema.model.c.state, schema.model.c.reason)).all())
    assert [tuple(one) for one in states] == [("failed", "its worker has gone"), ("failed", "killed"), ("ready", None)]


def test_a_pool_that_changed_is_refused_until_it_is_updated(campaign, tmp_path):
    held, labelled = ids(campaign.ask(2, person="ann"))
    campaign.tell(labelled, 1.0, person="ann")
    table = pq.read_table(tmp_path / "pool.parquet").to_pylist()
    kept = [row for row in table if row["sample"] != labelled]
    kept = [{**row, "x": -5.0} if row["sample"] == held else row for row in kept]
    new = [{"sample": f"new{i}", "x": 100.0 + i, "kind": "a"} for i in range(3)]
    pq.write_table(pa.Table.from_pylist(kept + new), tmp_path / "pool.parquet")
    with pytest.raises(UserError, match="has changed; ncprior campaign update-pool first"):
        campaign.ask(1, person="ann")
    with pytest.raises(UserError, match="has changed"):
        campaign.tell("s50" if held != "s50" else "s51", 1.0, person="ann")
    change = update_pool(campaign)
    assert (change.rows, change.came, change.went, change.touched_went) == (62, 3, 1, [labelled])
    assert campaign.status().labelled == 1
    everything = ids(campaign.ask(100, person="bob"))
    assert {"new0", "new1", "new2"} <= set(everything)
    assert labelled not in everything
    [still] = campaign.held("ann")
    assert (still.id, still.inputs["x"]) == (held, -5.0)


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
def test_a_pool_without_an_input_is_refused(campaign, tmp_path):
    pq.write_table(pq.read_table(tmp_path / "pool.parquet").drop_columns(["kind"]), tmp_path / "pool.parquet")
    with pytest.raises(UserError, match="no column 'kind'"):
        update_pool(campaign)


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_pools_of_both_formats_give_the_same_rows(make, tmp_path, suffix):
    table = pq.read_table(write_pool(tmp_path))
    folder = tmp_path / "pool"
    folder.mkdir()
    for i in (0, 1):
        half = table.slice(30 * i, 30)
        if suffix == "csv":
            pa.csv.write_csv(half, folder / f"{i}.csv")
        else:
            pq.write_table(half, folder / f"{i}.parquet")
    from_folder = make("folder", pool=folder)
    assert from_folder.ask(20, person="ann").rows == make("file").ask(20, person="ann").rows


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"sample": ["a", "b", "a"], "x": [1.0, 2.0, 3.0]}, "rows 1 and 3 have the same 'sample'"),
        ({"sample": ["a", None, "c"], "x": [1.0, 2.0, 3.0]}, "row 2 has no id"),
        ({"sample": ["a", "b"], "y": [1.0, 2.0]}, "no column to predict from"),
        ({"other": ["a", "b"], "x": [1.0, 2.0]}, "no column 'sample'"),
    ],
)
def test_bad_pools_are_refused_and_nothing_is_made(make, tmp_path, table, message):
    pq.write_table(pa.table(table), tmp_path / "bad.parquet")
    with pytest.raises(UserError, match=message):
        make(pool=tmp_path / "bad.parquet")
    make()  # the name is free


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"audit": 1.5}, "audit share of 1.5"),
        ({"replicates": 0}, "replicates 0"),
        ({"budget": 0}, "budget 0"),
        ({"lease": "soon"}, "'soon' is no length of time"),
        ({"target": ["y", "y"]}, "named twice"),
        ({"target": "sample"}, "cannot be a target"),
        ({"inputs": ["x", "sample"]}, "is an input and also the id"),
        ({"stop_error": -1.0}, "stop error -1"),
    ],
)
def test_bad_rules_are_refused(make, changes, message):
    with pytest.raises(UserError, match=message):
        make(**changes)


def test_results_of_a_table_are_previewed_and_told(campaign, tmp_path):
    row, other = ids(campaign.ask(2, person="ann"))
    campaign.tell(other, 2.0, person="ann")
    results = tmp_path / "results.csv"
    results.write_text(f"sample,y,note\n{row},1.5,fine\n{other},2.5,\nnowhere,1,\ns30,,\n")
    told = read_results(results, campaign.spec)
    assert [one.id for one in told] == [row, other, "nowhere"]
    preview = campaign.tell_rows(told, person="ann", preview=True)
    assert [one.outcome for one in preview] == ["new", "refused", "refused"]
    assert entries(campaign) == 1
    assert campaign.tell_rows(told, person="ann") == preview
    assert entries(campaign) == 2
    assert campaign.history(row)[-1].note == "fine"


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sample,z\ns1,1\n", "needs a column 'sample' and one of 'y'"),
        ("sample,y\ns1,1\ns1,2\n", "rows 1 and 2 have the same id"),
        ("sample,y\n,1\n", "row 1 has no id"),
        ("sample,y\ns1,low\n", "row 1: 'low' is no value of 'y'"),
    ],
)
def test_bad_tables_of_results_are_refused(campaign, tmp_path, text, message):
    (tmp_path / "results.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        read_results(tmp_path / "results.csv", campaign.spec)


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
def test_exports_are_safe_in_spreadsheets_and_can_be_read_back(make, tmp_path):
    keys = ["=cmd()", "+1", "@x", "-y", "plain", "-3"]
    pq.write_table(pa.table({"sample": keys, "x": [1.0, -2.0, 3.0, 4.0, 5.0, 6.0]}), tmp_path / "odd.parquet")
    campaign = make(pool=tmp_path / "odd.parquet")
    for i, key in enumerate(keys):
        campaign.tell(key, -float(i), person="ann", note="=HYPERLINK(1)")
    campaign.export(tmp_path / "labels.csv")
    with (tmp_path / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["sample"] for row in rows] == ["'=cmd()", "+1", "'@x", "'-y", "plain", "-3"]
    assert {row["note"] for row in rows} == {"'=HYPERLINK(1)"}
    assert [float(row["y"]) for row in rows] == [-0.0, -1.0, -2.0, -3.0, -4.0, -5.0]
    assert [one.id for one in read_results(tmp_path / "labels.csv", campaign.spec)] == keys


def test_tokens_are_hashed_and_revoked_at_once(campaign):
    write, read = campaign.database.write, campaign.database.read
    token = write(lambda c: people.add_token(c, "ann", "labeller", campaign.now()))
    kept = read(lambda c: c.execute(select(schema.person)).one())
    assert token.partition(".")[2] not in str(tuple(kept))
    assert read(lambda c: people.by_token(c, token)).name == "ann"
    for wrong in ("", ".", "1.", token[:-1], f"{token}x", f"99{token}", f"x{token}", "1.\ud800"):
        assert read(lambda c, wrong=wrong: people.by_token(c, wrong)) is None
    with pytest.raises(UserError, match="has a token"):
        write(lambda c: people.add_token(c, "ann", "owner", campaign.now()))
    write(lambda c: people.revoke(c, "ann", campaign.now()))
    assert read(lambda c: people.by_token(c, token)) is None
    with pytest.raises(UserError, match="revoked"):
        campaign.ask(1, person="ann")
    assert write(lambda c: people.add_token(c, "ann", "viewer", campaign.now())) != token
    with pytest.raises(UserError, match="is a viewer"):
        campaign.ask(1, person="ann")


def test_a_name_is_taken_once(make):
    make()
    with pytest.raises(UserError, match="there is a campaign 'first'"):
        make()
    with pytest.raises(UserError, match="is no name of a campaign"):
        make("../first")


def test_campaigns_of_one_storage_do_not_mix(make):
    first, second = make("a"), make("b")
    rows = ids(first.ask(60, person="ann"))
    assert set(rows) == set(ids(second.ask(60, person="bob")))
    first.tell(rows[0], 1.0, person="ann", key="k")
    assert second.tell(rows[1], 2.0, person="ann", key="k").outcome == "new"
    assert (first.status().labelled, second.status().labelled) == (1, 1)


def test_everything_is_there_after_a_restart(make, storage, clock):
    rows = ids(make().ask(3, person="ann"))
    database = Database(storage)
    again = Campaign.open("first", storage=database, now=clock)
    assert [one.id for one in again.held("ann")] == rows
    assert not set(rows) & set(ids(again.ask(57, person="bob")))
    database.close()


def test_a_full_disk_is_one_line_and_nothing_is_half_written(tmp_path, clock):
    database = Database(f"sqlite:///{tmp_path / 'campaign.db'}", create=True)
    campaign = Campaign.create("first", pool=write_pool(tmp_path), id="sample", target="y", storage=database, now=clock)
    campaign.ask(20, person="ann")
    before = entries(campaign), campaign.status().out

    def fill(connection):
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        raise Stop

    class Stop(Exception):
        pass

    with pytest.raises(Stop):
        database.write(fill)

    def tell_all():
        for row in campaign.held("ann"):
            campaign.tell(row.id, 1.0, person="ann", note="x" * 2000)

    with pytest.raises(UserError, match="the disk is full and nothing of this was written") as caught:
        tell_all()
    assert "\n" not in str(caught.value)
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    assert entries(campaign) + campaign.status().out == sum(before)
    database.close()


def test_network_file_systems_are_refused(tmp_path, monkeypatch):
    mounts = f"/dev/sda / ext4 rw 0 0\nserver:/export {tmp_path} nfs4 rw 0 0\n"
    assert network_file_system(tmp_path / "campaign.db", mounts) == "nfs4"
    assert network_file_system(tmp_path.parent / "campaign.db", mounts) is None
    monkeypatch.setattr("ncprior.campaigns.database.network_file_system", lambda _: "nfs4")
    with pytest.raises(UserError, match=r"network file system \(nfs4\)"):
        Database(f"sqlite:///{tmp_path / 'campaign.db'}", create=True)
    assert not (tmp_path / "campaign.db").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://x/y", "must be sqlite"),
        ("nonsense", "must be sqlite"),
        ("sqlite://", "must be sqlite"),
        ("sqlite:///missing.db", "no such database"),
        ("sqlite:///no/such/folder.db", "no such database"),
        ("postgresql://user:secret@127.0.0.1:1/x", "nothing of this was written"),
    ],
)
def test_bad_storages_are_one_line(url, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message) as caught:
        Database(url)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_database_is_told(tmp_path):
    (tmp_path / "campaign.db").write_text("not a database, " * 100)
    with pytest.raises(UserError, match="is no SQLite database"):
        Database(f"sqlite:///{tmp_path / 'campaign.db'}")


def test_migrations_make_the_tables_of_the_schema(storage):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    database = Database(storage, create=True)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": False})
        assert compare_metadata(context, schema.metadata) == []
        connection.rollback()
    with database.engine.connect().execution_options(ncprior_write=True) as connection, connection.begin():
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(UserError, match="newer ncprior"):
        Database(storage)
    with database.engine.connect().execution_options(ncprior_write=True) as connection, connection.begin():
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{REVISION}'")  # for other tests
    database.close()


def test_one_holder_is_a_rule_of_the_database_itself(campaign):
    from sqlalchemy.exc import IntegrityError

    campaign.ask(1, person="ann")

    def doubled(connection):
        held = connection.execute(select(schema.lease)).one()._asdict()
        connection.execute(schema.lease.insert().values({**held, "id": held["id"] + 1}))

    with pytest.raises(IntegrityError):
        campaign.database.write(doubled)


def test_tellings_in_one_table_share_a_transaction(campaign):
    rows = ids(campaign.ask(3, person="ann"))
    told = campaign.tell_rows([Telling(row, {"y": 1.0}) for row in rows], person="ann")
    assert [one.outcome for one in told] == ["new"] * 3
    assert campaign.status().labelled == 3
