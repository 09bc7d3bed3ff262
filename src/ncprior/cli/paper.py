"""The commands ``ncprior paper ...``: one for each experiment."""

import dataclasses
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncprior.cli.interrupts import RESUME, ends_at_once, stoppable
from ncprior.cli.options import AddressOption, EngineOption, ResumeOption, chosen_engine, split_names
from ncprior.cli.paper_options import (
    DEFAULT_METHODS,
    AcquisitionOption,
    DataOption,
    MethodsOption,
    OutOption,
    PlanesOption,
    Preset,
    PresetOption,
    Recipe,
    SetOption,
    SplitOption,
    Task,
)
from ncprior.cli.paper_runs import flight_source, run_methods, use_all_cores
from ncprior.errors import UserError
from ncprior.terminal import remark, say

if TYPE_CHECKING:
    from ncprior.engines.engine import Engine
    from ncprior.experiments.paper.learning_curves import Config

paper = typer.Typer(no_args_is_help=True, help="Run the experiments of the paper.")


@paper.command("toy")
def paper_toy(
    *,
    preset: PresetOption = Preset.reference,
    methods: MethodsOption = DEFAULT_METHODS,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds, 0 and up. \\[default: 20; quick: 5]")] = None,
    acquisition: AcquisitionOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="A fifth of the epochs: about a minute.")] = False,
    change: SetOption = None,
    out: OutOption = Path("runs/toy"),
    engine: EngineOption = "local",
    address: AddressOption = None,
    resume: ResumeOption = False,
) -> None:
    """Active learning in one dimension: Figures 1 and 3.

    [bold]Examples[/bold]

      ncprior paper toy --quick

      ncprior paper toy --seeds 20 --out runs/toy-reference

      ncprior paper toy --preset paper --set gamma=0.3 --methods bbb+ncp --out runs/gamma
    """
    with ends_at_once():
        use_all_cores()
        from ncprior.experiments.paper import toy

    config = toy.configure(str(preset), split_names(methods), seeds, acquisition, quick=quick)
    _run_toy(toy.NAME, config, change, out=out, resume=resume, engine=chosen_engine(engine, address))


@paper.command("ablations")
def paper_ablations(
    *,
    preset: PresetOption = Preset.reference,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds, 0 and up. \\[default: 20; quick: 5]")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A fifth of the epochs: about a minute.")] = False,
    change: SetOption = None,
    out: OutOption = Path("runs/ablations"),
    engine: EngineOption = "local",
    address: AddressOption = None,
    resume: ResumeOption = False,
) -> None:
    """Variants of BBB+NCP that, by the paper, make no difference: the direction of the KL, and a weight prior.

    [bold]Example[/bold]

      ncprior paper ablations --quick
    """
    with ends_at_once():
        use_all_cores()
        from ncprior.experiments.paper import ablations

    config = ablations.configure(str(preset), seeds, quick=quick)
    _run_toy(ablations.NAME, config, change, out=out, resume=resume, engine=chosen_engine(engine, address))


def _run_toy(
    name: str, config: "Config", change: list[str] | None, *, out: Path, resume: bool, engine: "Engine | None"
) -> None:
    """Run an experiment on the 1-dimensional data, and draw its page."""
    with ends_at_once():
        from ncprior.cli.changes import apply_changes
        from ncprior.data import toy as toy_data
        from ncprior.experiments.paper import learning_curves, toy

    config = apply_changes(config, change or [])
    learning_curves.check(config, toy_data.load())
    run_methods(name, config, partial(toy.experiment, config, engine=engine), out=out, resume=resume)


@paper.command("prior")
def paper_prior(
    *,
    preset: PresetOption = Preset.reference,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds, 0 and up. \\[default: 8; quick: 4]")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A fifth of the epochs, half of the seeds.")] = False,
    change: SetOption = None,
    out: OutOption = Path("runs/prior"),
    resume: ResumeOption = False,
) -> None:
    """Functions drawn from the noise contrastive prior, before there are labels (Equation 3).

    [bold]Examples[/bold]

      ncprior paper prior --quick

      ncprior paper prior --preset paper --set output_std=0.5 --out runs/prior-narrow
    """
    with ends_at_once():
        use_all_cores()
        from ncprior.cli.changes import apply_changes
        from ncprior.cli.progress import progress_bars
        from ncprior.experiments.paper import function_prior
        from ncprior.experiments.records import Records
        from ncprior.report.page import report

    config = function_prior.configure(str(preset), seeds, quick=quick)
    config = apply_changes(config, change or [], unused=function_prior.UNUSED)
    function_prior.check(config)
    with (
        stoppable(RESUME),
        Records.running(out, function_prior.NAME, dataclasses.asdict(config), resume=resume) as records,
    ):
        trained = [stage for stage in function_prior.STAGES if stage != "initial"]
        done = [stage for stage in trained if stage not in function_prior.unfinished(records)]
        with progress_bars(trained, done) as show:
            function_prior.experiment(config, records, show)
        say(f"report: {report(out)}")


@paper.command("flights")
def paper_flights(
    *,
    data: DataOption = "nyc2013",
    split: SplitOption = "temporal",
    planes: PlanesOption = None,
    preset: PresetOption = Preset.reference,
    methods: MethodsOption = DEFAULT_METHODS,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds, 0 and up. \\[default: 10; quick: 5]")] = None,
    acquisition: AcquisitionOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Half of the labels, fewer seeds.")] = False,
    change: SetOption = None,
    out: OutOption = Path("runs/flights"),
    engine: EngineOption = "local",
    address: AddressOption = None,
    resume: ResumeOption = False,
) -> None:
    """Active learning on flight delays: Figure 4. BBB+NCP with random labels is always run as a control.

    [bold]Examples[/bold]

      ncprior paper flights --quick

      ncprior paper flights --data dataexpo:2008.csv.bz2 --split plane-order --out runs/flights-2008
    """
    with ends_at_once():
        use_all_cores()
        from ncprior.cli.changes import apply_changes
        from ncprior.experiments.paper import flights, learning_curves

    source = flight_source(data, split, planes)
    config = flights.configure(source, str(preset), split_names(methods), seeds, acquisition, quick=quick)
    config = apply_changes(config, change or [])
    loaded = source.load()
    learning_curves.check(config, loaded)
    run = partial(flights.experiment, config, loaded, engine=chosen_engine(engine, address))
    run_methods(flights.NAME, config, run, out=out, resume=resume)


@paper.command("robustness")
def paper_robustness(
    task: Annotated[Task, typer.Argument(help="Figure 5 is on flights, the figure of appendix C on toy.")],
    *,
    data: DataOption = "nyc2013",
    split: SplitOption = "temporal",
    planes: PlanesOption = None,
    preset: PresetOption = Preset.reference,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds for each of the 20 settings. \\[default: 5; quick: 2]")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The quick schedule, two seeds.")] = False,
    change: SetOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder. \\[default: runs/robustness-TASK]")] = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    resume: ResumeOption = False,
) -> None:
    """Robustness to the input noise: Figure 5 and the figure of appendix C. The data options are for flights.

    [bold]Examples[/bold]

      ncprior paper robustness flights

      ncprior paper robustness toy --quick --out runs/robustness-quick
    """
    with ends_at_once():
        use_all_cores()
        from ncprior.cli.changes import apply_changes
        from ncprior.data import toy as toy_data
        from ncprior.experiments.paper import flights, learning_curves, robustness, toy

    if task == Task.toy:
        if (data, split, planes) != ("nyc2013", "temporal", None):
            raise UserError("--data, --split and --planes are for robustness flights; leave them out")
        base, loaded = toy.configure(str(preset), quick=quick), toy_data.load()
    else:
        source = flight_source(data, split, planes)
        base, loaded = flights.configure(source, str(preset), quick=quick), source.load()
    if any(item.startswith("input_noise") for item in change or []):
        raise UserError("--set input_noise...: this experiment compares all kinds and sizes of input noise itself")
    config = apply_changes(robustness.configure(base, seeds, quick=quick), change or [])
    learning_curves.check(config, loaded)
    name = robustness.NAMES[task]
    runner = chosen_engine(engine, address)
    run = partial(robustness.experiment, config, loaded, engine=runner, evaluate_unseen=task == Task.toy)
    run_methods(name, config, run, out=out or Path("runs") / name, resume=resume)


@paper.command("regression")
def paper_regression(
    *,
    data: DataOption = "nyc2013",
    split: SplitOption = "temporal",
    planes: PlanesOption = None,
    preset: PresetOption = Preset.reference,
    recipe: Annotated[
        Recipe, typer.Option(help="The training of the paper, or one that was tuned on held-out training rows.")
    ] = Recipe.paper,
    methods: MethodsOption = "bbb,bbb+ncp,odc+ncp,det",
    epochs: Annotated[int | None, typer.Option(help="Epochs. \\[default: the recipe's]")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows in a mini batch. \\[default: 256]")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds, 0 and up. \\[default: 3; quick: 1]")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed, narrow networks on 50,000 rows.")] = False,
    change: SetOption = None,
    out: OutOption = Path("runs/regression"),
    resume: ResumeOption = False,
) -> None:
    """Regression on all training rows: Table 1.

    [bold]Examples[/bold]

      ncprior paper regression --quick

      ncprior paper regression --data dataexpo:2008.csv.bz2 --split plane-order --recipe tuned --out runs/table1

      ncprior paper regression --seeds 1 --set validation=0.125 --out runs/chosen-epoch
    """
    # Without `use_all_cores`: a wide network is fastest on one device, which uses every core.
    with ends_at_once():
        from ncprior.cli.changes import apply_changes
        from ncprior.experiments.paper import regression

    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        if value is not None and any(item.startswith(f"{name}=") for item in change or []):
            raise UserError(f"--set {name}=... and --{name.replace('_', '-')} say the same: give one of them")
    source = flight_source(data, split, planes)
    config = regression.configure(
        *(source.source, source.split, source.paths, source.planes),
        preset=str(preset),
        recipe=str(recipe),
        methods=split_names(methods),
        epochs=epochs,
        batch_size=batch_size,
        seeds=seeds,
        quick=quick,
    )
    config = apply_changes(config, change or [], unused=regression.UNUSED)
    loaded = regression.load(config)
    run_methods(regression.NAME, config, partial(regression.experiment, config, loaded), out=out, resume=resume)


@paper.command("all")
@stoppable(RESUME)
def paper_all(
    *,
    data: DataOption = "nyc2013",
    split: SplitOption = "temporal",
    planes: PlanesOption = None,
    preset: PresetOption = Preset.reference,
    quick: Annotated[bool, typer.Option("--quick", help="The quick version of every experiment.")] = False,
    out: OutOption = Path("runs/all"),
    resume: ResumeOption = False,
) -> None:
    """Every figure and table of the paper on one page, with a verdict on each of its claims.

    [bold]Example[/bold]

      ncprior paper all --quick
    """
    with ends_at_once():
        from ncprior.experiments.records import Records
        from ncprior.report.page import ALL, report

    parts = ("toy", "flights", "robustness-flights", "robustness-toy", "regression", "ablations")
    source: dict[str, Any] = {"data": data, "split": split, "planes": planes}
    shared: dict[str, Any] = {"preset": preset, "quick": quick}
    with Records.running(out, ALL, {"parts": parts, **source, **shared}, resume=resume) as records:
        for part in parts:
            remark(f"{part}:")
            place: dict[str, Any] = {"out": records.path(part), "resume": records.exists(f"{part}/config.json")}
            if part == "toy":
                paper_toy(**shared, **place)
            elif part == "ablations":
                paper_ablations(**shared, **place)
            elif part == "flights":
                paper_flights(**source, **shared, **place)
            elif part == "regression":
                # In a process of its own, in which JAX has one device, as when it is run alone.
                words = {
                    name: value for name, value in (source | {"preset": preset, "out": place["out"]}).items() if value
                }
                options = [f"--{name}={value}" for name, value in words.items()]
                options += [f"--{name}" for name in ("quick", "resume") if (shared | place)[name]]
                command = [sys.executable, "-m", "ncprior", "paper", "regression", *options]
                if code := subprocess.run(command).returncode:
                    raise typer.Exit(code)
            elif part == "robustness-flights":
                paper_robustness(Task.flights, **source, **shared, **place)
            else:
                paper_robustness(Task.toy, **shared, **place)
        say(f"report: {report(out)}")
