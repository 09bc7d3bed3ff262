"""The command line, through real processes where these matter."""

import html
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ncprior.experiments.paper.learning_curves import load_networks
from ncprior.experiments.paper.regression import UNUSED
from ncprior.experiments.records import Records

NCPRIOR = str(Path(sys.executable).parent / "ncprior")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SMALL = ["--seeds", "2", "--set", "hidden=16,16", "--set", "select_every=5", "--set", "evaluate_every=5"]


# In front of a command: runs it on a single core.
ONE_CORE = [
    *(sys.executable, "-c"),
    "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); os.execv(sys.argv[1], sys.argv[1:])",
]


def ncprior(*arguments, before=(), **options):
    command = [*before, NCPRIOR, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def toy_options(out, epochs=30, methods="bbb+ncp,det"):
    return [*SMALL, "--set", f"epochs={epochs}", "--methods", methods, "--out", str(out)]


@pytest.fixture
def mistake(run):
    return partial(run, code=2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "toy"
    done = ncprior("paper", "toy", *toy_options(out))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"report: {out / 'report.html'}"
    return out, done


def test_a_run_leaves_what_it_promises(finished):
    out, done = finished
    results = json.loads((out / "results.json").read_text())
    assert set(results["methods"]) == {"bbb+ncp", "det"}
    for metrics in results["methods"].values():
        for name in ("test_rmse", "test_nlpd", "train_rmse", "train_nlpd"):
            assert set(metrics[name]) == {"mean", "std", "median"}
    assert results["config"]["seeds"] == 2
    assert results["config"]["settings"]["hidden"] == [16, 16]
    table = pq.read_table(out / "metrics" / "bbb+ncp.parquet")
    assert table.num_rows == 2 * 6
    assert {"seed", "epoch", "labels", "test_rmse", "test_nlpd", "loss_nll", "loss_ncp"} <= set(table.column_names)
    np.testing.assert_array_equal(table["labels"].to_numpy()[::2], [10, 11, 12, 13, 14, 15])
    final = table["test_rmse"].to_numpy()[-2:]
    assert results["methods"]["bbb+ncp"]["test_rmse"]["mean"] == pytest.approx(final.mean())
    for name in ("figure1.svg", "figure1.png", "figure3.pdf"):
        assert (out / "figures" / name).stat().st_size > 1000
    assert "epoch 30/30" in done.stderr
    assert "labels" in done.stderr


def test_the_report_holds_everything(finished):
    page = (finished[0] / "report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 2 * 2  # each for a wide page and for a narrow one
    assert "This run is not the paper&#39;s experiment (epochs 30 instead of 50000" in page
    assert "seeds 2 instead of 20" in page
    assert "fewer than five seeds" in page
    assert 'class="holds"' not in page
    assert "published: 1.46 ± 0.64" in page
    assert "1e-8 is added to the variance" in page
    assert "hidden" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def laid_out(page, widths, folder):
    """For each width of a window: that of the page in it, where its boxes end, and the shape of its first figure."""
    frames = "".join(f'<iframe width="{width}" height="900" srcdoc="{html.escape(page)}"></iframe>' for width in widths)
    script = """<script>addEventListener("load", () => {
      document.title = JSON.stringify([...document.querySelectorAll("iframe")].map(frame => {
        const page = frame.contentDocument, image = page.querySelector("figure img");
        const boxes = [...page.querySelectorAll(".scroll")].map(box => box.getBoundingClientRect().right);
        const count = name => page.querySelectorAll(name).length;
        return {page: page.documentElement.scrollWidth, boxes: Math.max(...boxes),
          shape: image.naturalHeight / image.naturalWidth, unboxed: count("table") - count(".scroll table")};
      })); });</script>"""
    (folder / "frames.html").write_text(f"<!doctype html><title></title>{frames}{script}")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
    command = [CHROMIUM, *options, f"--user-data-dir={folder / 'profile'}", (folder / "frames.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(html.unescape(re.search("<title>(.*?)</title>", done.stdout)[1]))


@pytest.mark.skipif(
    CHROMIUM is None and "NCPRIOR_NEED_BROWSER" not in os.environ, reason="no Chromium to lay the page out with"
)
def test_a_narrow_page_stacks_panels_and_scrolls_tables_in_their_boxes(finished, tmp_path):
    narrow, wide = laid_out((finished[0] / "report.html").read_text(), (390, 1200), tmp_path)
    assert narrow["page"] <= 390
    assert narrow["boxes"] <= 390
    assert narrow["unboxed"] == 0
    assert narrow["shape"] > 1.2  # higher than wide
    assert wide["shape"] < 0.6


def test_report_draws_again_from_records_alone(finished, tmp_path, in_process, monkeypatch):
    out = finished[0]
    page, figure = (out / "report.html").read_bytes(), (out / "figures" / "figure3.svg").read_bytes()
    for name in ("report.html", "results.json", "figures/figure3.svg"):
        (out / name).unlink()
    monkeypatch.chdir(tmp_path)
    assert in_process("report", out) == 0
    assert (out / "report.html").read_bytes() == page
    assert (out / "figures" / "figure3.svg").read_bytes() == figure


@pytest.mark.usefixtures("undrawn")
def test_a_finished_run_is_not_run_again(finished, tmp_path, in_process, monkeypatch, capsys):
    out = shutil.copytree(finished[0], tmp_path / "run")
    monkeypatch.setattr("ncprior.core.active.Simulation.run", lambda *_: pytest.fail("it is run again"))
    assert in_process("paper", "toy", *toy_options(out), "--resume") == 0
    assert "epoch" not in capsys.readouterr().err


def start(*arguments, before=()):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*before, NCPRIOR, *arguments], text=True, **pipes)


def wait_for_epoch(process, out, epoch):
    """Until the records of a running process have come this far."""
    path = out / "metrics" / "bbb+ncp.parquet"
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        # The bytes of one moment: Arrow opens a path twice, and the file may be replaced in between.
        if path.exists() and max(pq.read_table(io.BytesIO(path.read_bytes()))["epoch"].to_pylist()) >= epoch:
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    pytest.fail("the run did not get on")


@pytest.mark.usefixtures("interruptible", "undrawn")
def test_interrupted_and_killed_runs_go_on_to_the_same_numbers(tmp_path, in_process):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    # Eighty evaluations: several seconds in which to be interrupted. Labels are drawn after every sixteenth.
    rounds = ["--set", "select_every=160", "--set", "evaluate_every=10"]
    command = ["paper", "toy", *toy_options(broken, epochs=800, methods="bbb+ncp"), *rounds]

    process = start(*command)
    wait_for_epoch(process, broken, 170)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "--resume" in errors.splitlines()[-1]
    assert "Traceback" not in errors

    # This part runs on a single core: neither that nor the interruptions may change a bit.
    process = start(*command, "--resume", before=ONE_CORE)
    wait_for_epoch(process, broken, 400)
    process.kill()
    process.communicate(timeout=120)
    assert not (broken / "results.json").exists()
    # A process that dies while it writes leaves a draft, which must not matter and is removed.
    draft = broken / "metrics" / ".bbb+ncp.parquet.0123456789abcdef.ncprior-part"
    draft.write_bytes(b"half")

    assert in_process(*command, "--resume") == 0
    assert in_process(*command, "--out", whole) == 0
    assert not draft.exists()

    a, b = (pq.read_table(run / "metrics" / "bbb+ncp.parquet") for run in (whole, broken))
    assert a.num_rows == 2 * 80
    assert a.equals(b)
    for name in ("labels/bbb+ncp.parquet", "curves/bbb+ncp.parquet"):
        assert pq.read_table(whole / name).equals(pq.read_table(broken / name))


@pytest.mark.usefixtures("undrawn")
def test_a_seed_is_the_same_alone(finished, tmp_path, in_process):
    assert in_process("paper", "toy", *toy_options(tmp_path / "run"), "--seeds", "1") == 0
    for name in ("bbb+ncp", "det"):
        alone, among = (pq.read_table(run / "metrics" / f"{name}.parquet") for run in (tmp_path / "run", finished[0]))
        assert alone.equals(among.filter(pc.field("seed") == 0))


def test_trained_networks_can_be_loaded(finished):
    records = Records.open(finished[0])
    method, networks = load_networks(records, "bbb+ncp")
    assert len(networks) == 2
    curves = records.read_table("curves/bbb+ncp.parquet")
    second = curves["seed"] == 1
    prediction = method(networks[1], jnp.asarray(curves["x"][second])[:, None])
    np.testing.assert_allclose(prediction.mean[:, 0], curves["mean"][second], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(prediction.uncertainty[:, 0], curves["uncertainty"][second], rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("undrawn")
def test_variants_of_the_prior_in_one_run(tmp_path, run):
    out = tmp_path / "run"
    told = run("paper", "ablations", *SMALL, "--set", "epochs=10", "--out", out)
    assert told.strip() == f"report: {out / 'report.html'}"
    results = json.loads((out / "results.json").read_text())
    rmse = {name: of["test_rmse"]["mean"] for name, of in results["methods"].items()}
    assert list(rmse) == ["bbb+ncp", "bbb+ncp@reverse", "bbb+ncp@weight_prior"]
    assert len(set(rmse.values())) == 3
    terms = set(pq.read_table(out / "metrics" / "bbb+ncp@weight_prior.parquet").column_names)
    assert {"loss_nll", "loss_ncp", "loss_weight_kl"} <= terms
    page = (out / "report.html").read_text()
    assert "The direction of the KL divergence makes no significant difference" in page
    assert "BBB+NCP, weight prior too" in page
    method, networks = load_networks(Records.open(out), "bbb+ncp@reverse")
    assert len(networks) == 2
    assert method.name == "bbb+ncp"


@pytest.mark.usefixtures("undrawn")
def test_other_scores_for_every_method(tmp_path, in_process):
    options = ["--acquisition", "ood_information_gain", "--methods", "odc+ncp,odc+ncp@random", "--set", "epochs=10"]
    assert in_process("paper", "toy", *SMALL, *options, "--out", tmp_path / "run") == 0
    assert "ood information gain" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "bbb,magic"], "unknown method 'magic': choose from det, det+ncp, bbb, bbb+ncp, odc+ncp"),
        (["--methods", ","], "no method given"),
        (["--methods", "bbb@reverse"], "'bbb@reverse': reverse is a variant of bbb+ncp alone"),
        (["--seeds", "0"], "seeds must be at least 1"),
        (["--acquisition", "luck"], "unknown acquisition 'luck'"),
        (["--acquisition", "ood_probability"], "needs the OOD classifier"),
        (["--set", "gama=1"], "--set gama=1: give NAME=VALUE with one of the names hidden,"),
        (["--set", "gamma"], "--set gamma: give NAME=VALUE"),
        (["--set", "gamma=much"], "--set gamma=much: expected a number"),
        (["--set", "gamma=-1"], "gamma must be a number from 0 to 1e+09, got -1.0"),
        (["--set", "hidden=0"], "hidden[0] must be a whole number from 1 to 65,536, got 0"),
        (["--set", "leaky_slope=nan"], "leaky_slope must be a number from -1 to 1, got nan"),
        (["--set", "draw=dice"], "expected without_replacement or with_replacement or greedy"),
        (["--set", "epochs=70"], "evaluate_every (500) must divide"),
        (["--set", "select=100"], "the schedule asks for 4910 labels but there are only 400 rows"),
        (["--set", "initial=5"], "5 initial labels do not fill a mini batch of 10"),
    ],
)
def test_bad_options_get_one_clear_line(tmp_path, arguments, message, mistake):
    errors = mistake("paper", "toy", *arguments, "--out", tmp_path / "run")
    assert errors.startswith("ncprior: ")
    assert message in errors


def test_a_bad_option_in_a_real_process(tmp_path):
    done = ncprior("paper", "toy", "--methods", "magic", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr == "ncprior: unknown method 'magic': choose from det, det+ncp, bbb, bbb+ncp, odc+ncp\n"
    assert not (tmp_path / "run").exists()


def test_bad_folders_get_one_clear_line(finished, tmp_path, tmp_path_factory, mistake):
    (tmp_path / "notes.txt").write_text("mine")
    foreign = tmp_path_factory.mktemp("foreign")
    (foreign / "config.json").write_text("{}")
    cases = [
        (["report", tmp_path / "nowhere"], "no run of ncprior"),
        (["report", tmp_path], "no run of ncprior"),
        (["report", foreign], "not of a run of ncprior, or damaged"),
        (["paper", "toy", "--out", foreign, "--resume"], "not of a run of ncprior, or damaged"),
        (["paper", "toy", "--out", tmp_path], "not a run of ncprior"),
        (["paper", "toy", "--out", finished[0]], "add --resume"),
        (["paper", "toy", "--out", finished[0], "--resume"], "other settings"),
    ]
    for arguments, message in cases:
        assert message in mistake(*arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_full_disk_stops_the_run_with_one_line(tmp_path):
    """Files are limited to less than a checkpoint takes, which fails as a full disk does."""
    limited = f'ulimit -f 10; trap "" XFSZ; exec "{NCPRIOR}" "$@"'
    arguments = ["paper", "toy", *SMALL, "--set", "epochs=30", "--methods", "det", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        ["bash", "-c", limited, "bash", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "cannot be written" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_help_and_version():
    done = ncprior("paper", "toy", "--help")
    assert done.returncode == 0
    assert "--resume" in done.stdout
    assert "ncprior paper toy --quick" in done.stdout
    assert ncprior("--version").stdout.startswith("ncprior ")
    assert ncprior("paper", "chess").returncode == 2


@pytest.fixture(scope="module")
def flights(tmp_path_factory):
    """Four small files in the authors' layout."""
    prefix = tmp_path_factory.mktemp("data") / "small"
    random = np.random.default_rng(0)
    for part, rows in (("train", 300), ("test", 80)):
        inputs = random.normal(size=(rows, 8))
        np.save(f"{prefix}-{part}-inputs.npy", inputs)
        np.save(f"{prefix}-{part}-targets.npy", 30 * inputs[:, :1] + random.normal(size=(rows, 1)))
    return f"npy:{prefix}"


@pytest.fixture(scope="module")
def flights_run(flights, tmp_path_factory, in_process):
    out = tmp_path_factory.mktemp("runs") / "flights"
    small = ["--seeds", "3", "--set", "hidden=8", "--set", "epochs=150", "--methods", "bbb+ncp,bbb"]
    assert in_process("paper", "flights", "--data", flights, *small, "--out", out) == 0
    return out


def test_flights_always_have_a_random_control(flights_run):
    results = json.loads((flights_run / "results.json").read_text())
    assert set(results["methods"]) == {"bbb+ncp", "bbb", "bbb+ncp@random"}
    assert results["methods"]["bbb"]["test_rmse"]["mean"] > 1  # in units of the target, whose std is 30
    page = (flights_run / "report.html").read_text()
    assert "BBB+NCP has lower test RMSE than BBB." in page
    assert (flights_run / "figures" / "figure4.png").exists()


def test_robustness_runs_all_settings_of_a_method_as_one_batch(flights, tmp_path, in_process):
    out = tmp_path / "run"
    small = ["--seeds", "1", "--set", "hidden=8", "--set", "epochs=50"]
    assert in_process("paper", "robustness", "flights", "--data", flights, *small, "--out", out) == 0
    table = pq.read_table(out / "metrics" / "bbb+ncp.parquet").to_pydict()
    assert len(table["seed"]) == 20
    assert sorted(set(table["noise"])) == ["gaussian", "uniform"]
    assert len(set(table["test_rmse"])) > 15  # the settings do differ
    settings = json.loads((out / "results.json").read_text())["settings"]
    assert len(settings) == 2 * 20 + 2
    assert (out / "figures" / "figure5.pdf").exists()


@pytest.mark.usefixtures("undrawn")
def test_regression_runs_its_seeds_with_the_settings_asked_for(flights, tmp_path, monkeypatch, in_process):
    out = tmp_path / "run"
    asked = {"hidden": "8", "gamma": "0.3", "validation": "0.25", "epochs": "2", "batch_size": "16"}
    options = [word for name, value in asked.items() for word in ("--set", f"{name}={value}")]
    words = ["paper", "regression", "--data", flights, "--methods", "bbb+ncp", "--seeds", 2, *options, "--out", out]
    # Baselines have their own tests.
    monkeypatch.setattr("ncprior.experiments.paper.regression.baselines", lambda _: ({}, []))
    assert in_process(*words) == 0
    results = json.loads((out / "results.json").read_text())
    config, values = results["config"], results["methods"]["bbb+ncp"]
    assert (config["settings"]["hidden"], config["settings"]["gamma"]) == ([8], 0.3)
    assert (config["seeds"], config["schedule"]["validation"]) == (2, 0.25)
    table = pq.read_table(out / "metrics" / "bbb+ncp.parquet").to_pydict()
    assert (table["seed"], table["epoch"]) == ([0, 0, 1, 1], [1, 2, 1, 2])
    # The epoch that is best on the rows kept apart is the one that counts.
    best = [1 + int(np.argmin(table["valid_nlpd"][start : start + 2])) for start in (0, 2)]
    assert values["epochs"] == best
    kept = [table["test_rmse"][start + epoch - 1] for start, epoch in zip((0, 2), best, strict=True)]
    assert values["test_rmse"]["mean"] == pytest.approx(np.mean(kept))
    assert f"{np.mean(kept):.3f} ± {np.std(kept):.3f}" in (out / "report.html").read_text()


@pytest.mark.usefixtures("undrawn")
def test_one_page_with_all_experiments(finished, flights_run, tmp_path, in_process):
    folder = tmp_path / "all"
    folder.mkdir()
    for name, run in (("toy", finished[0]), ("flights", flights_run)):
        (folder / name).symlink_to(run)
    (folder / "config.json").write_text(
        json.dumps({"experiment": "all", "config": {"parts": ["toy", "flights"]}, "versions": {}})
    )
    assert in_process("report", folder) == 0
    page = (folder / "report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 2 * 3
    assert "Active learning in one dimension" in page
    assert "Active learning on flight delays" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["flights", "--data", "moon"], "unknown source of flights 'moon'"),
        (["flights", "--data", "dataexpo:/nowhere/2008.csv"], "2008.csv"),
        (["flights", "--split", "sideways"], "unknown split"),
        (["robustness", "flights", "--data", "npy:/nowhere/x"], "x-train-inputs.npy"),
        (["regression", "--data", "npy:/nowhere/x"], "x-train-inputs.npy"),
        (["regression", "--methods", "magic"], "unknown method 'magic'"),
        (["regression", "--seeds", "0"], "seeds must be at least 1"),
        (["regression", "--set", "magic=1"], "--set magic=1: give NAME=VALUE with one of the names hidden,"),
        (["regression", "--set", "remainder=filled"], "choose smaller or dropped"),
        (["regression", "--epochs", "2", "--set", "epochs=3"], "--epochs say the same"),
        (["regression", "--batch-size", "64", "--set", "batch_size=32"], "--batch-size say the same"),
        *((["regression", "--set", f"{name}=1"], f"does not use {name}") for name in sorted(UNUSED)),
    ],
)
def test_bad_flight_options_get_one_clear_line(tmp_path, arguments, message, mistake):
    assert message in mistake("paper", *arguments, "--out", tmp_path / "run")
