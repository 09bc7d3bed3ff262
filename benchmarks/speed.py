"""How fast training and scoring are, as ratios of what this machine can do in the same run.

Each part runs in a process of its own, pinned to one core, and takes CPU time; measurements alternate with a
probe (a 20 x 200 x 200 multiply, the shape of the toy network's layers, as an XLA program of its own) and medians are
reported. The comparison of one core with all of them and the network of Table 1, whose multiplies use all cores, take
wall time.

    python -m benchmarks.speed --out bench.json
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

REPEATS = 5

WHOLE = ("wide", "first_fit", "labels_loop", "larger_fits", "predict_table")
"""Parts in which all cores are one device, as for users."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--devices", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.part:
        use(arguments.devices, apart=arguments.part not in WHOLE)
        print(json.dumps(PARTS[arguments.part]()))
        return
    cores = len(os.sched_getaffinity(0))
    results: dict[str, Any] = {"cores": cores}
    for name in ("toy", "flights", "scoring", "compilations"):
        results |= run_part(name, devices=1)
    pairs = [(run_part("seeds", devices=1)["us"], run_part("seeds", devices=cores)["us"]) for _ in range(3)]
    one, every = (median([pair[i] for pair in pairs]) for i in (0, 1))
    results |= {"seeds_one_core_us": one, "seeds_all_cores_us": every, "seeds_speedup": one / every}
    results |= run_part("wide", devices=cores)
    results |= run_part("torch", devices=1)
    with tempfile.TemporaryDirectory() as cache:
        for state in ("cold", "warm"):
            first = run_part("first_fit", devices=cores, cache=cache)
            results |= {f"{state}_{name}": value for name, value in first.items()}
        for name in ("labels_loop", "larger_fits", "predict_table"):
            results |= run_part(name, devices=cores, cache=cache)
    arguments.out.write_text(json.dumps(results, indent=2) + "\n")
    show(results)
    print(f"written to {arguments.out}")


def run_part(name: str, devices: int, cache: str = "off") -> dict[str, Any]:
    """Runs one part in a process of its own and gives what it measured; programs are kept in the folder ``cache``."""
    command = [sys.executable, "-m", "benchmarks.speed", "--part", name, "--devices", str(devices)]
    print(f"measuring {name} on {devices} core{'s' if devices > 1 else ''} ...", file=sys.stderr, flush=True)
    environment = os.environ | {"NCPRIOR_CACHE": cache}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return dict(json.loads(output.splitlines()[-1]))


def use(cores: int, *, apart: bool) -> None:
    """Pins the process to this many cores, before JAX computes anything; each is a device, or all are one."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    if apart:
        from ncprior.cli.paper_runs import use_all_cores

        use_all_cores()


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def timed(function: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> float:
    import jax

    start = clock()
    jax.block_until_ready(function())
    return clock() - start


def make_probe() -> Callable[[], float]:
    """A function that gives the GFLOPS of a chain of 20 x 200 x 200 multiplies."""
    import jax
    import jax.numpy as jnp

    chain = jax.jit(lambda a, b, n: jax.lax.fori_loop(0, n, lambda _, x: (x @ b) * 0.005, a))
    a, b, n = jnp.ones((20, 200)), jnp.ones((200, 200)), 5000
    chain(a, b, 1).block_until_ready()
    return lambda: 2 * 20 * 200 * 200 * n / timed(lambda: chain(a, b, n)) / 1e9


def make_stream() -> Callable[[], float]:
    """A function that gives the rate in GB/s of reading and writing an array as large as the toy network."""
    import jax
    import jax.numpy as jnp

    scale = jax.jit(lambda x, n: jax.lax.fori_loop(0, n, lambda _, y: y * 0.999, x))
    x, n = jnp.ones(41_000), 20_000
    scale(x, 1).block_until_ready()
    return lambda: 2 * x.nbytes * n / timed(lambda: scale(x, n)) / 1e9


def make_training(hidden: tuple[int, ...], inputs: int, seeds: int, labels: int, **changes: Any) -> Any:
    """A function that trains BBB+NCP for some epochs, the parameters of one network, and the steps of an epoch."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from ncprior.core.methods import methods
    from ncprior.core.optimizers import adam
    from ncprior.core.settings import REFERENCE
    from ncprior.core.training import Clock, Rows, Trainer, over_seeds, seed_keys, seed_mesh, train_seeds

    settings = dataclasses.replace(REFERENCE, hidden=hidden, **changes)
    optimizer = adam(settings.learning_rate, clip=settings.clip, epsilon_hat=settings.epsilon_hat)
    trainer = Trainer(methods(settings)["bbb+ncp"], optimizer, settings.batch_size, settings.remainder)
    random = np.random.default_rng(0)
    x, y = (jnp.asarray(random.normal(size=(labels, n)), jnp.float32) for n in (inputs, 1))
    rows = Rows(x, y)
    static = trainer.static(inputs, 1)
    visible = jnp.arange(trainer.buffer(labels), dtype=jnp.int32)
    learners = jax.vmap(lambda key: trainer.start(rows, visible, key=key))(seed_keys(range(seeds)))
    size = sum(leaf[0].size for leaf in jax.tree.leaves(learners.params))
    program = jax.jit(
        over_seeds(
            lambda many, rows, clock, epochs: train_seeds(trainer, many, rows, static, clock=clock, epochs=epochs),
            seed_mesh(seeds),
        ),
        donate_argnums=0,
    )
    clock = Clock(*np.asarray([0, labels], np.int32))

    def train(epochs: int) -> Any:
        nonlocal learners
        learners = program(learners, rows, clock, np.int32(epochs))
        return learners

    train(1)
    return train, size, labels // settings.batch_size


def toy() -> dict[str, Any]:
    """A step of the toy network against the bound: its multiplies at the probe's rate, and Adam's memory traffic."""
    probe, stream = make_probe(), make_stream()
    variants = {"reference": {}, "exact": {"expectation": "exact"}}
    training = {name: make_training((200, 200), 1, 4, 50, **change) for name, change in variants.items()}
    rates, streams = [], []
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(REPEATS):
        rates.append(probe())
        streams.append(stream())
        for name, (train, _, steps) in training.items():
            times[name].append(timed(partial(train, 100)) / (100 * steps * 4) * 1e6)
    size = training["reference"][1]
    # Three multiplies (forward, and backward for weights and for activations) of 20 rows in every layer; Adam reads
    # parameters, both moments and gradients, and writes all but the gradients.
    flops = 3 * 2 * 20 * (1 * 200 + 200 * 200 + 200 * 3)
    bound = flops / median(rates) / 1e3 + 7 * 4 * size / median(streams) / 1e3
    result = {"probe_gflops": median(rates), "stream_gbs": median(streams), "toy_bound_us": bound}
    for name, values in times.items():
        result |= {f"toy_{name}_us": median(values), f"toy_{name}_ratio": median(values) / bound}
    return result


def flights() -> dict[str, Any]:
    """A step of a flights-size network with 20 seeds, and what it would take where the probe runs at 78 GFLOPS."""
    probe = make_probe()
    train, _, steps = make_training((50, 50), 8, 20, 200, input_noise_std=0.1, noise_prior_std=None)
    rates, times = [], []
    for _ in range(REPEATS):
        rates.append(probe())
        times.append(timed(lambda: train(20)) / (20 * steps * 20) * 1e6)
    return {"flights_us": median(times), "flights_us_at_78": median(times) * median(rates) / 78}


def seeds() -> dict[str, Any]:
    """Wall time of a toy step and seed with 20 seeds spread over all devices."""
    train, _, steps = make_training((200, 200), 1, 20, 50)
    times = [timed(lambda: train(60), time.perf_counter) / (60 * steps * 20) * 1e6 for _ in range(REPEATS)]
    return {"us": median(times)}


def wide() -> dict[str, Any]:
    """Steps of the network of Table 1 (three layers of 1000, batches of 256) against multiplies of its shape."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from ncprior.core.methods import methods
    from ncprior.data.dataset import Dataset
    from ncprior.experiments.paper.data_parallel import Regression, Schedule
    from ncprior.experiments.paper.regression import configure

    steps, random, settings = 60, np.random.default_rng(0), configure().settings
    inputs, targets = (random.normal(size=(256 * steps, n)).astype(np.float32) for n in (8, 1))
    data = Dataset(inputs, targets, inputs[:100], targets[:100])
    chain = jax.jit(lambda a, b, n: jax.lax.fori_loop(0, n, lambda _, x: (x @ b) * 0.001, a))
    result: dict[str, Any] = {}
    for name in ("bbb", "bbb+ncp"):
        regression = Regression(methods(settings)[name], settings, Schedule(epochs=50), data, seed=0)
        state = regression.start()
        rows = 256 * (2 if "ncp" in name else 1)  # the noised inputs go through the network too
        a, b = jnp.ones((rows, 1000)), jnp.ones((1000, 1000))
        chain(a, b, 1).block_until_ready()
        flops = 3 * 2 * rows * (8 * 1000 + 2 * 1000 * 1000 + 3 * 1000)
        shares = []
        for epoch in range(1, REPEATS + 2):
            probe = 2 * rows * 1000 * 1000 * 2 * steps / timed(partial(chain, a, b, 2 * steps), time.perf_counter)
            start = time.perf_counter()
            *_, (state, _) = regression.train(state, epoch)
            shares.append(flops * steps / (time.perf_counter() - start) / probe)
        result |= {f"wide_{name}_gflops": probe * median(shares[1:]) / 1e9, f"wide_{name}_share": median(shares[1:])}
    return result


def scoring() -> dict[str, Any]:
    """Scoring 700,000 rows of 8 inputs with two layers of 50, information gain and drawing of 10 rows included."""
    import jax
    import jax.numpy as jnp

    from ncprior.core.active import choose
    from ncprior.core.methods import methods
    from ncprior.core.settings import PAPER

    probe, rows = make_probe(), 700_000
    method = methods(dataclasses.replace(PAPER, hidden=(50, 50)))["bbb+ncp"]
    network = method.init(8, 1, key=jax.random.key(0))
    pool = jax.random.normal(jax.random.key(1), (rows, 8))
    seen = jnp.zeros(rows, bool)
    program = jax.jit(lambda pool, seen, key: choose(method, network, pool, seen, 10, key=key))
    program(pool, seen, jax.random.key(2)).block_until_ready()
    rates, times = [], []
    for i in range(REPEATS):
        rates.append(probe())
        times.append(timed(partial(program, pool, seen, jax.random.key(i))))
    flops = 2 * rows * (8 * 50 + 50 * 50 + 50 * 3)  # the heads: mean, its variance, noise
    rate = flops / median(times) / 1e9
    return {"scoring_ms": median(times) * 1e3, "scoring_gflops": rate, "scoring_share": rate / median(rates)}


TORCH_NETWORKS = {"small": ((128, 128), 64), "wide": ((512, 512), 256)}
"""Hidden layers and mini batches of the PyTorch networks: what suits a table, and one that is mostly multiplies."""


def pytorch() -> dict[str, Any]:
    """Training steps of PyTorch networks with `NCPLoss` against those without NCP; empty without PyTorch."""
    if importlib.util.find_spec("torch") is None:
        return {}
    import torch
    from torch import nn

    from ncprior.torch import BayesianLinear, NCPLoss, Radial

    torch.set_num_threads(1)

    class Net(nn.Module):
        def __init__(self, hidden: tuple[int, ...]) -> None:
            super().__init__()
            sizes = (8, *hidden)
            layers = [[nn.Linear(a, b), nn.LeakyReLU()] for a, b in pairwise(sizes)]
            self.trunk = nn.Sequential(*(module for pair in layers for module in pair))
            self.mean, self.noise = BayesianLinear(hidden[-1], 1), nn.Linear(hidden[-1], 1)

        def forward(self, x: Any) -> Any:
            features = self.trunk(x)
            mean, uncertainty = self.mean(features)
            return mean, nn.functional.softplus(self.noise(features)) + 0.01, uncertainty

    def likelihood(net: Any, x: Any, y: Any) -> Any:
        mean, noise, uncertainty = net(x)
        squares = ((y - mean) ** 2 + uncertainty**2) / noise**2
        return (0.5 * squares + torch.log(noise)).mean()

    def make_step(hidden: tuple[int, ...], loss: Any, x: Any, y: Any) -> Callable[[], None]:
        torch.manual_seed(0)
        net = Net(hidden)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

        def step() -> None:
            optimizer.zero_grad()
            loss(net, x, y).backward()
            optimizer.step()

        return step

    losses = {
        "plain": likelihood,
        "ncp": NCPLoss(Radial(1.0), gamma=0.1),
        "all": NCPLoss(Radial(1.0), gamma=0.1, centre="prediction", away=True, noise_tie=0.1, weight_kl=1.0, rows=1000),
    }
    result: dict[str, Any] = {}
    for name, (hidden, rows) in TORCH_NETWORKS.items():
        torch.manual_seed(0)
        x, y = torch.randn(rows, 8), torch.randn(rows, 1)
        steps = {kind: make_step(hidden, loss, x, y) for kind, loss in losses.items()}
        ratios: dict[str, list[float]] = {kind: [] for kind in losses}
        for _ in range(REPEATS + 1):  # the first warms up
            times = {kind: timed(lambda: [step() for _ in range(100)]) for kind, step in steps.items()}  # noqa: B023
            for kind, seconds in times.items():
                ratios[kind].append(seconds / times["plain"])
        result |= {f"torch_{name}_us": times["plain"] / 100 * 1e6}
        result |= {f"torch_{name}_{kind}_ratio": median(ratios[kind][1:]) for kind in ("ncp", "all")}
    return result


def compilations() -> dict[str, Any]:
    """How often the program of a run is compiled while labels arrive; the most of the four methods."""
    import jax

    from ncprior.core.active import Simulation
    from ncprior.data import toy as toy_data
    from ncprior.experiments.paper import toy as toy_experiment

    names: list[str] = []

    def listen(event: str, duration_secs: float, **notes: str | int) -> None:  # noqa: ARG001
        if "backend_compile" in event:
            names.append(str(notes.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    config = toy_experiment.configure(quick=True)
    schedule = dataclasses.replace(config.schedule, epochs=1000, select_every=100)
    counts = []
    for method in config.methods:
        del names[:]
        simulation = Simulation(config.trainer(method), toy_data.load(), schedule, [0, 1], evaluate_unseen=True)
        for _ in simulation.run():
            pass
        counts.append(sum("stretch" in name for name in names))
    return {"compilations": max(counts)}


def make_table(rows: int) -> tuple[Any, Any]:
    """A table of 8 columns, and its target."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 8))
    return x, np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.normal(size=rows)


def first_fit() -> dict[str, Any]:
    """CPU seconds from a fresh process to predictions of 1,000 rows of 8 columns, and of what follows."""
    marks = [time.process_time()]
    import jax

    marks.append(time.process_time())
    from ncprior import NCPRegressor

    marks.append(time.process_time())
    names: list[str] = []

    def listen(event: str, duration_secs: float, **notes: str | int) -> None:  # noqa: ARG001
        if "backend_compile" in event:
            names.append(str(notes.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    x, y = make_table(1_000)

    def fit() -> Any:
        model = NCPRegressor(random_state=0).fit(x, y)
        model.predict(x, return_std=True)
        return model

    first = timed(fit)
    programs = len(names)
    second = timed(fit)
    model = fit()
    model.predict(x[:1])
    row = median([timed(lambda: model.predict(x[:1])) for _ in range(100)])
    return {
        "import_jax_s": marks[1] - marks[0],
        "import_s": marks[2] - marks[0],
        "fit_s": first,
        "programs": programs,
        "next_fit_s": second,
        "row_ms": row * 1e3,
        "fit_gflops": make_probe()(),
    }


def labels_loop() -> dict[str, Any]:
    """CPU seconds of active learning from 50 rows, 30 rounds of 10 labels: networks anew, or trained further."""
    import numpy as np

    from ncprior import NCPRegressor

    x, y = make_table(2_000)

    def loop(warm_start: bool) -> None:
        labelled, model = np.arange(50), NCPRegressor(warm_start=warm_start, random_state=0)
        for _ in range(30):
            model.fit(x[labelled], y[labelled])
            pool = np.setdiff1d(np.arange(len(x)), labelled)
            labelled = np.concatenate([labelled, pool[model.suggest(x[pool], n=10, random_state=0)]])

    return {"loop_s": timed(partial(loop, False)), "warm_loop_s": timed(partial(loop, True))}


LARGER = (10_000, 1_000_000)
"""Rows of the larger tables that are learned from."""


def larger_fits() -> dict[str, Any]:
    """Wall and CPU seconds of fits of larger tables, with programs that are compiled already but for their sizes."""
    from ncprior import NCPRegressor

    result: dict[str, Any] = {}
    for rows in LARGER:
        x, y = make_table(rows)
        wall = time.perf_counter()
        result[f"fit_{rows}_cpu_s"] = timed(lambda: NCPRegressor(random_state=0).fit(x, y))  # noqa: B023
        result[f"fit_{rows}_s"] = time.perf_counter() - wall
    return result


def predict_table(rows: int = 1 << 20) -> dict[str, Any]:
    """The share of the multiply rate of ``ncprior predict`` from Parquet to Parquet, starting included."""
    from benchmarks import pools

    with tempfile.TemporaryDirectory() as place:
        model = pools.make_model(Path(place))
        found = pools.measure("predict", model, pools.make_table(Path(place) / "pool.parquet", rows), rows)
    return {"predict_cpu_s": found["cpu_seconds"], "predict_share": found["share_of_multiply_rate"]}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "toy": toy,
    "flights": flights,
    "seeds": seeds,
    "wide": wide,
    "scoring": scoring,
    "compilations": compilations,
    "torch": pytorch,
    "first_fit": first_fit,
    "labels_loop": labels_loop,
    "larger_fits": larger_fits,
    "predict_table": predict_table,
}


def show(results: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("what", "measured", "ratio", "wanted", title="Speed, against this machine's own rates")
    r = results
    table.add_row("20 x 200 x 200 multiply, one core", f"{r['probe_gflops']:.0f} GFLOPS", "", "")
    table.add_row("toy BBB+NCP step, bound", f"{r['toy_bound_us']:.1f} us", "1", "")
    for name, label in (("exact", "closed-form likelihood"), ("reference", "sampled likelihood")):
        ratio = f"{r[f'toy_{name}_ratio']:.2f} x bound"
        table.add_row(f"toy BBB+NCP step, {label}", f"{r[f'toy_{name}_us']:.1f} us", ratio, "at most 2 (1.25)")
    at_78 = f"{r['flights_us_at_78']:.1f} us at 78 GFLOPS"
    table.add_row("flights-size step and seed, 20 seeds", f"{r['flights_us']:.1f} us", at_78, "at most 20 us")
    speedup = f"{r['seeds_speedup']:.2f} x on {r['cores']} cores"
    table.add_row("20 toy seeds, step and seed", f"{r['seeds_all_cores_us']:.1f} us", speedup, "at least 1.7")
    for name, label in (("bbb", "BBB"), ("bbb+ncp", "BBB+NCP")):
        share = f"{r[f'wide_{name}_share']:.0%} of the multiply"
        rate = f"{r[f'wide_{name}_gflops']:.0f} GFLOPS"
        table.add_row(f"Table 1 network, {label}, batch 256, all cores", rate, share, "at least 85%")
    share = f"{r['scoring_share']:.0%} of the multiply"
    table.add_row("scoring 700K x 8 and drawing", f"{r['scoring_ms']:.0f} ms", share, "at least 40% (55%)")
    table.add_row("programs compiled for a method", str(r["compilations"]), "", "1 for each method")
    imports = f"{r['warm_import_s'] / r['warm_import_jax_s']:.1f} x import jax"
    table.add_row("from ncprior import NCPRegressor", f"{r['warm_import_s']:.2f} s of CPU", imports, "at most 2")
    for state, wanted in (("cold", "at most 2.3"), ("warm", "at most 1.3")):
        ratio = f"{r[f'{state}_fit_s'] / r[f'{state}_next_fit_s']:.2f} x the next"
        what = f"first fit and predict, 1,000 x 8, {state} cache ({r[f'{state}_programs']} programs compiled)"
        table.add_row(what, f"{r[f'{state}_fit_s']:.1f} s of CPU", ratio, wanted)
    seconds = {
        "warm_next_fit_s": ("next fit and predict", 3),
        "loop_s": ("30 rounds x 10 labels from 50 rows", 60),
        "warm_loop_s": ("the same with warm_start", 60),
        "fit_10000_cpu_s": ("fit of 10,000 x 8", 12),
        "fit_1000000_cpu_s": ("fit of 1,000,000 x 8", 90),
    }
    for name, (label, limit) in seconds.items():
        at_78 = f"{r[name] * r['warm_fit_gflops'] / 78:.1f} s at 78 GFLOPS"
        table.add_row(label, f"{r[name]:.1f} s of CPU", at_78, f"{limit} s on two cores")
    share = f"{r['predict_share']:.0%} of the multiply"
    table.add_row("predict, 1M x 8, Parquet", f"{r['predict_cpu_s']:.0f} s of CPU", share, "at least 70%")
    table.add_row("one row predicted", f"{r['warm_row_ms']:.2f} ms of CPU", "", "1 ms")
    if "torch_small_us" not in r:
        table.add_row("PyTorch step with NCP", "skipped: PyTorch is not installed (make test-torch)", "", "")
    for name, (hidden, rows) in TORCH_NETWORKS.items() if "torch_small_us" in r else ():
        for kind, label in (("ncp", "NCP"), ("all", "NCP and all other terms")):
            what = f"PyTorch step, layers {hidden}, batch {rows}: {label}"
            ratio = f"{r[f'torch_{name}_{kind}_ratio']:.2f} x without NCP"
            table.add_row(what, f"{r[f'torch_{name}_us']:.0f} us without", ratio, "at most 2.2")
    Console().print(table)


if __name__ == "__main__":
    main()
