"""The arithmetic of audits and stop rules."""

import math

import numpy as np
import pytest

from ncprior.campaigns.audit import AuditRow, curve, rmse_interval, scores
from ncprior.campaigns.predicted import Predicted
from ncprior.campaigns.spec import Spec
from ncprior.campaigns.stopping import labels_until, rules


def rows(errors, labels=None):
    labels = [10] * len(errors) if labels is None else labels
    zero = Predicted.normal(0.0, 1.0, 0.0)
    return [
        AuditRow(f"r{i}", "y", 1, int(n), float(e), zero) for i, (e, n) in enumerate(zip(errors, labels, strict=True))
    ]


def spec(**changes):
    return Spec(id_column="id", targets=("y",), inputs={"x": "number"}, **changes)


@pytest.mark.parametrize("tails", ["normal", "student"])
def test_the_interval_of_the_rmse_holds_the_truth_as_often_as_it_says(tails):
    generator = np.random.default_rng(0)
    held = []
    for _ in range(2_000):
        errors = generator.normal(size=40) if tails == "normal" else generator.standard_t(8, 40) / math.sqrt(8 / 6)
        low, high = rmse_interval(list(errors**2))
        held.append(low <= 1 <= high)
    assert 0.85 <= np.mean(held) <= 0.94


def test_scores_are_those_of_a_normal():
    values = [0.5, -1.0, 3.0]
    found = scores(rows(values))
    assert found.rmse == pytest.approx(math.sqrt(sum(v * v for v in values) / 3))
    assert found.coverage == pytest.approx(2 / 3)
    assert found.nlpd == pytest.approx(sum(0.5 * v * v for v in values) / 3 + 0.5 * math.log(2 * math.pi))


def test_a_mixture_has_the_density_of_its_parts():
    mixed = Predicted(0.0, 1.0, 0.0, -1.0, 1.0, (0.25, 0.75), (0.0, 2.0), (1.0, 0.5))
    x = np.linspace(-10, 12, 20_001)
    density = np.exp([mixed.log_prob(value) for value in x])
    assert np.trapezoid(density, x) == pytest.approx(1.0, abs=1e-6)
    assert np.trapezoid(density * x, x) == pytest.approx(1.5, abs=1e-5)
    assert Predicted.from_json(mixed.to_json()) == mixed


def test_the_curve_has_every_row_once():
    points = curve(rows(np.ones(37), range(37)))
    assert sum(point.rows for point in points) == 37
    assert len(points) == 3
    assert [point.labels for point in points] == sorted(point.labels for point in points)


def power_law(exponent, count=150, seed=0):
    labels = np.linspace(20, 300, count)
    return rows(np.random.default_rng(seed).normal(size=count) * 2 * labels**exponent, labels)


def test_a_forecast_finds_where_a_power_law_leads():
    forecast = labels_until(2 * 500**-0.5, power_law(-0.5))
    assert forecast.low < 500 < forecast.high
    assert forecast.low < forecast.labels < forecast.high


def test_an_error_that_does_not_fall_has_no_forecast():
    assert labels_until(0.1, power_law(0.2)) is None
    assert labels_until(0.1, rows([1.0] * 9)) is None


def test_the_budget_rule_counts_rows():
    [rule] = rules(spec(budget=10), 4, 24, [])
    assert (rule.name, rule.reached) == ("budget", False)
    assert "6 are left" in rule.text
    assert rules(spec(budget=10), 10, 30, [])[0].reached


def test_the_error_rule_goes_by_the_bound_and_not_by_the_estimate():
    audits = rows(np.random.default_rng(0).normal(size=60) * 0.5, np.linspace(20, 200, 60))
    [near] = rules(spec(stop_error=0.52), 60, 200, audits)
    assert not near.reached
    assert rules(spec(stop_error=0.9), 60, 200, audits)[0].reached
    assert "10 are needed" in rules(spec(stop_error=0.9), 5, 25, audits[:5])[0].text


def test_patience_ends_when_the_error_no_longer_falls():
    labels = np.repeat([100, 200], 20)
    better, worse = np.repeat([2.0, 1.0], 20), np.repeat([1.0, 1.1], 20)
    assert not rules(spec(stop_patience=100), 40, 200, rows(better, labels))[0].reached
    assert rules(spec(stop_patience=100), 40, 200, rows(worse, labels))[0].reached
    assert "are needed" in rules(spec(stop_patience=100), 40, 200, rows(worse[:25], labels[:25]))[0].text
