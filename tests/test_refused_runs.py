"""Runs of the paper's experiments that are refused leave nothing behind: neither a folder nor a configuration."""

import sys

import pytest

from ncprior.cli.main import main
from ncprior.data import flights, toy


@pytest.fixture(autouse=True)
def little_data(monkeypatch):
    """Flights that are read at once; and no more devices for a process that has some already."""
    monkeypatch.setattr(flights, "load", lambda *_, **__: toy.load())
    monkeypatch.setattr("ncprior.cli.paper.use_all_cores", lambda: None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["toy", "--set", "initial=5000000"], "asks for 5000049 labels but there are only 400 rows"),
        (["toy", "--set", "initial=5"], "5 initial labels do not fill a mini batch of 10"),
        (["toy", "--acquisition", "ood_probability"], "needs the OOD classifier"),
        (["toy", "--methods", "det", "--set", "gamma=3"], "gamma has no effect with method 'det'; leave it out"),
        (
            ["toy", "--methods", "det,bbb", "--set", "gamma=3"],
            "--set gamma=3: gamma has no effect with method 'det' and method 'bbb'; leave it out",
        ),
        (["toy", "--methods", "bbb+ncp", "--set", "gamma=0", "--set", "output_std=2"], "no effect with gamma 0"),
        (["toy", "--methods", "bbb", "--set", "det_score=predictive_variance"], "labels by 'information_gain'"),
        (["toy", "--acquisition", "random", "--set", "temperature=1"], "no effect with labels by 'random'"),
        (["toy", "--methods", "bbb@random", "--acquisition", "uncertainty"], "acquisition has no effect, as every"),
        (["toy", "--methods", "bbb+ncp@reverse", "--set", "ncp_away=true", "--set", "gamma=0"], "with gamma 0"),
        (["ablations", "--set", "direction=reverse"], "'bbb+ncp@reverse' does not differ from bbb+ncp with these"),
        (["ablations", "--set", "weight_kl=0"], "'bbb+ncp@weight_prior' does not differ from bbb+ncp with these"),
        (["ablations", "--set", "odc_prediction=mixture"], "no effect with method 'bbb+ncp'"),
        (["prior", "--set", "temperature=2"], "this experiment does not use temperature"),
        (["prior", "--set", "select=2"], "this experiment does not use select"),
        (["flights", "--set", "noise_tie=1", "--set", "weight_prior_std=2", "--methods", "det"], "ncp_weight_kl 0"),
        (["regression", "--methods", "odc+ncp", "--set", "gamma=2"], "no effect with method 'odc+ncp'"),
        (["ablations", "--set", "initial=500"], "asks for 549 labels but there are only 400 rows"),
        (["prior", "--set", "initial=500"], "initial must be at most 400, the number of training rows; got 500"),
        (["prior", "--set", "initial=5"], "5 initial labels do not fill a mini batch of 10"),
        (["flights", "--set", "select=100"], "asks for 3910 labels but there are only 400 rows"),
        (["robustness", "toy", "--set", "select=100"], "asks for 4910 labels but there are only 400 rows"),
        (["robustness", "toy", "--split", "random"], "--data, --split and --planes are for robustness flights"),
        (["robustness", "flights", "--set", "initial=5"], "5 initial labels do not fill a mini batch of 10"),
        (
            ["regression", "--batch-size", "512", "--set", "remainder=dropped"],
            "400 training rows do not fill a mini batch",
        ),
    ],
)
def test_a_refused_run_leaves_no_folder(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["ncprior", "paper", *arguments, "--out", str(tmp_path / "runs" / "one")])
    with pytest.raises(SystemExit) as stop:
        main()
    errors = capsys.readouterr().err
    assert stop.value.code == 2
    assert message in errors
    assert errors.count("\n") == 1
    assert not list(tmp_path.iterdir())
