"""The command ``ncprior``: a thin layer that turns options into configurations and errors into one line."""

import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from ncprior import __version__
from ncprior.cli.paper import paper
from ncprior.cli.stopping import KEPT, Stopped, stoppable
from ncprior.cli.tables import fit, predict, suggest
from ncprior.cli.trust import evaluate, simulate
from ncprior.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Neural regression that knows what it does not know, and says what to label next.",
)
for command in (fit, predict, suggest, evaluate, simulate):
    app.command()(command)
app.add_typer(paper, name="paper")


def main() -> None:
    """Runs the command; a mistake of the user's is one line on stderr and exit code 2."""
    keep_programs()
    try:
        with stoppable(KEPT):
            app()
    except UserError as error:
        print(f"ncprior: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except Stopped as stopped:
        print(f"ncprior: stopped; {stopped}", file=sys.stderr, flush=True)
        with suppress(OSError):  # a pipe that nobody reads any more
            sys.stdout.flush()
        # At once: JAX may still compute in other threads, and Python's own way out crashes or hangs on them.
        os._exit(130)


def keep_programs() -> None:
    """Keeps compiled programs between runs, in the user's cache folder unless JAX is told otherwise.

    JAX reads these settings when it is imported, so this must come first.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ncprior" / "programs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return  # a home that cannot be written to; programs are compiled anew
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    # A full disk costs time, and is told where results are written.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Neural regression that knows what it does not know, and says what to label next."""
    if show:
        print(f"ncprior {__version__}")
        raise typer.Exit


@app.command("report")
@stoppable(KEPT)
def draw_report(folder: Annotated[Path, typer.Argument(help="Folder of a finished run.")]) -> None:
    """Draw figures and report of a run again, from its records alone.

    [bold]Example[/bold]

      ncprior report runs/toy
    """
    from ncprior.experiments.records import Records
    from ncprior.report.page import report

    with Records.open(folder).alone():
        print(f"report: {report(folder)}")
