"""A month of a campaign in seconds: three people, late, wrong, corrected and missing results, models, a new pool."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

from ncprior.campaigns import Campaign, schema
from ncprior.campaigns.audit import audit_rows
from ncprior.campaigns.labels import Telling
from ncprior.campaigns.pool_update import update_pool
from ncprior.campaigns.predicted import Predicted
from ncprior.campaigns.training import Ranked
from ncprior.campaigns.worker import work

NOISE = 0.2


def truth(x):
    return np.sin(3 * x) + 0.5 * x


def write_pool(path, first, last):
    x = np.random.default_rng(5).uniform(-2, 2, 1_000)
    keys = [f"p{i}" for i in range(first, last)]
    pq.write_table(pa.table({"key": keys, "x": x[first:last]}), path)
    return dict(zip(keys, x[first:last], strict=True))


class Polynomials:
    """A model that gets better with labels, as its degree grows; it wants rows far from those it knows."""

    def __init__(self, inputs, targets, spec, seed, unlabelled):  # noqa: ARG002
        degree = min(9, 1 + len(targets) // 25)
        self.fit = np.polynomial.Polynomial.fit(inputs["x"].to_numpy(), targets[:, 0], degree, domain=(-2, 2))
        self.seed, self.targets = seed, spec.targets

    def predict(self, inputs):
        return {"y": [Predicted.normal(float(mean), NOISE, 0.3) for mean in self.fit(inputs["x"].to_numpy())]}

    def rank(self, candidates, known, count, excluded):
        x, near = candidates["x"].to_numpy(), known["x"].to_numpy()
        distance = np.abs(x[:, None] - near[None]).min(axis=1)
        rows = np.argsort(np.where(excluded, np.inf, -distance), kind="stable")[:count]
        return Ranked(rows, distance[rows])

    def content(self):
        return self.fit.coef.tobytes()

    def metrics(self):
        return {"seed": self.seed, "coefficients": self.fit.coef.tolist()}


def remaining_error(campaign, x_of):
    """The expected squared error of each model on rows that have no label in the end, noise included."""
    query = select(schema.model.c.id, schema.model.c.metrics).where(schema.model.c.state == "ready")
    labelled = select(schema.item.c.row_key).where(schema.item.c.state == "labelled")
    models, keys = campaign.database.read(lambda c: (c.execute(query).all(), set(c.execute(labelled).scalars())))
    x = np.array([value for key, value in x_of.items() if key not in keys])
    fits = {one.id: np.polynomial.Polynomial(one.metrics["coefficients"], domain=(-2, 2)) for one in models}
    return {number: float(np.mean((fit(x) - truth(x)) ** 2) + NOISE**2) for number, fit in fits.items()}


def test_a_month_of_three_people(tmp_path):
    pool, url = tmp_path / "pool.parquet", f"sqlite:///{tmp_path / 'campaign.db'}"
    x_of = write_pool(pool, 0, 600)
    today = [datetime(2026, 6, 1, 8, tzinfo=UTC)]
    generator = np.random.default_rng(1)
    campaign = Campaign.create(
        "month", pool=pool, id="key", target="y", storage=url, audit=0.25, stop_error=0.35, now=lambda: today[0]
    )
    late, wrong, told, by, never = [], {}, {}, set(), 0
    for day in range(30):
        for person in ("ann", "bob", "chen"):
            # Who got a row again after its time was over measures it once.
            due = [one for when, who, one in late if when <= day and who == person and (who, one.id) not in by]
            results = {one.id: one for one in due}
            late = [entry for entry in late if not (entry[0] <= day and entry[1] == person)]
            for row in campaign.ask(5, person=person, lease="2d").rows:
                value = float(truth(row.inputs["x"]) + NOISE * generator.normal())
                fate = generator.random()
                if fate < 0.05:
                    never += 1  # no result ever comes
                elif fate < 0.08:
                    campaign.fail(row.id, person=person)
                elif fate < 0.20:
                    late.append((day + 4, person, Telling(row.id, {"y": value}, key=f"{person} {row.id}")))
                elif fate < 0.25:
                    wrong[row.id] = (person, value)
                    results[row.id] = Telling(row.id, {"y": value * 10 + 5})
                else:
                    results[row.id] = Telling(row.id, {"y": value})
            outcomes = campaign.tell_rows(list(results.values()), person=person)
            # A late one may meet the label of who held the row after them; both are kept.
            assert {one.outcome for one in outcomes} <= {"new", "known"}
            told |= {one.id: one.values["y"] for one in outcomes}
            by |= {(person, one.id) for one in outcomes}
        if day % 5 == 4:
            for row, (person, value) in wrong.items():
                campaign.correct(row, value, person="olga", of=person, note="ten times too much")
            wrong = {}
            work(campaign, Polynomials)
        if day == 12:
            x_of |= write_pool(pool, 100, 800)
            change = update_pool(campaign)
            assert (change.came, change.went, change.rows) == (200, 100, 700)
        if day == 20:  # a restart of everything
            campaign.database.close()
            campaign = Campaign.open("month", storage=url, now=lambda: today[0])
        today[0] += timedelta(days=1)

    status = campaign.status()
    audits = campaign.database.read(lambda c: audit_rows(c, campaign.id))
    present = status.audits[0].present
    of_model = remaining_error(campaign, {key: x for key, x in x_of.items() if int(key[1:]) >= 100})
    true_error = float(np.sqrt(np.mean([of_model[row.model] for row in audits[-present.rows :]])))
    assert never > 5
    assert present.rows >= 15
    assert present.rmse_low <= true_error <= present.rmse_high
    assert present.rmse_high < 3 * present.rmse_low  # an interval that says something
    whole = float(np.sqrt(np.mean([of_model[row.model] for row in audits])))
    assert np.sqrt(np.mean([row.squared_error for row in audits])) == pytest.approx(whole, rel=0.3)
    assert status.audits[0].curve[-1].rmse < status.audits[0].curve[0].rmse / 2
    assert status.labelled == len(set(told))
    history = tmp_path / "history.parquet"
    campaign.export(history, history=True)
    assert pq.read_table(history).num_rows == status.labels
    campaign.database.close()
