"""The command ``ncprior``: a thin layer that turns options into configurations and errors into one line."""

import dataclasses
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ncprior import __version__
from ncprior.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Neural regression that knows what it does not know, and says what to label next.",
)
paper = typer.Typer(no_args_is_help=True, help="Run the experiments of the paper.")
app.add_typer(paper, name="paper")


class Preset(StrEnum):
    """Which settings to begin with."""

    reference = "reference"
    paper = "paper"


def main() -> None:
    """Runs the command; a mistake of the user's is one line on stderr and exit code 2."""
    try:
        app()
    except UserError as error:
        print(f"ncprior: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Neural regression that knows what it does not know, and says what to label next."""
    if show:
        print(f"ncprior {__version__}")
        raise typer.Exit


@paper.command("toy")
def paper_toy(
    preset: Annotated[
        Preset, typer.Option(help="Settings of the released code, or of the paper's text.")
    ] = Preset.reference,
    methods: Annotated[
        str, typer.Option(help="Comma-separated: det, det+ncp, bbb, bbb+ncp, odc+ncp.")
    ] = "bbb+ncp,odc+ncp,bbb,det",
    seeds: Annotated[int | None, typer.Option(help="Number of seeds, 0 and up. [default: 20; quick: 4]")] = None,
    acquisition: Annotated[
        str | None, typer.Option(help="Score for every method, e.g. random. [default: each method's own]")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A fifth of the epochs: about a minute.")] = False,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change one setting, e.g. gamma=0.3; can be repeated."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for records, figures and report.")] = Path("runs/toy"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
) -> None:
    """Active learning in one dimension: Figures 1 and 3.

    [bold]Examples[/bold]

      ncprior paper toy --quick

      ncprior paper toy --seeds 20 --out runs/toy-reference

      ncprior paper toy --preset paper --set gamma=0.3 --methods bbb+ncp --out runs/gamma
    """
    use_all_cores()
    from ncprior.cli.options import apply_changes
    from ncprior.cli.progress import progress_bars
    from ncprior.experiments import toy
    from ncprior.experiments.records import Records
    from ncprior.report.page import report

    names = tuple(dict.fromkeys(name.strip() for name in methods.split(",") if name.strip()))
    config = toy.configure(str(preset), names, seeds, acquisition, quick=quick)
    config = apply_changes(config, change or [])
    records = Records.create(out, toy.NAME, dataclasses.asdict(config), resume=resume)
    with explained_interrupt(), progress_bars(config.methods) as show:
        toy.experiment(config, records, show)
    print(f"report: {report(out)}")


@app.command("report")
def draw_report(folder: Annotated[Path, typer.Argument(help="Folder of a finished run.")]) -> None:
    """Draw figures and report of a run again, from its records alone.

    [bold]Example[/bold]

      ncprior report runs/toy
    """
    from ncprior.report.page import report

    print(f"report: {report(folder)}")


@contextmanager
def explained_interrupt() -> Iterator[None]:
    """Ends a run on Ctrl-C with a line on how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        print("ncprior: stopped; the same command with --resume goes on from the last finished round", file=sys.stderr)
        raise typer.Exit(130) from None


def use_all_cores() -> None:
    """Makes every core a device of JAX, for seeds to be spread over. Must come before JAX computes anything.

    With one device and several cores XLA keeps the other cores busy for nothing on small networks. The settings
    are those of a process of our own: a library must not change them for its users.
    """
    flag = "--xla_cpu_multi_thread_eigen=false"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
    import jax

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jax.config.update("jax_num_cpu_devices", cores)
