"""The command ``ncprior``: a thin layer that turns options into configurations and errors into one line."""

import errno
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer._click.exceptions import ClickException

from ncprior import __version__
from ncprior.cli.acquisition_help import AcquisitionCommand
from ncprior.cli.evaluate import evaluate
from ncprior.cli.fit import fit
from ncprior.cli.interrupts import KEPT, Stopped, ends_at_once, stoppable
from ncprior.cli.paper import paper
from ncprior.cli.predict import predict
from ncprior.cli.simulate import simulate
from ncprior.cli.suggest import suggest
from ncprior.errors import UserError
from ncprior.terminal import printable, remark, say

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Neural regression that knows what it does not know, and says what to label next.",
)
for command in (fit, predict, suggest, evaluate, simulate):
    app.command(cls=AcquisitionCommand if command in (suggest, simulate) else None)(command)
app.add_typer(paper, name="paper")


def run() -> NoReturn:
    """Runs the command and ends the process: a mistake of the user's is one line on stderr and exit code 2."""
    keep_programs()
    warnings.formatwarning = _plain_warning
    try:
        with stoppable(""), arriving():
            code = app(standalone_mode=False) or 0
        if code == 130:  # Ctrl-C between the parts of a command
            raise Stopped
    except UserError as error:
        code = complain(str(error))
    except ClickException as error:
        from typer.rich_utils import rich_format_error

        error.message = printable(error.message)
        rich_format_error(error)
        code = error.exit_code
    except Stopped as stopped:
        remark(f"ncprior: stopped; {stopped}" if str(stopped) else "ncprior: stopped")
        with suppress(OSError):  # a pipe that nobody reads any more
            sys.stdout.flush()
        # At once: JAX may still compute in other threads, and Python's own way out crashes or hangs on them.
        os._exit(130)
    except Exception:
        import traceback

        for line in traceback.format_exc().splitlines():
            remark(line)
        code = 1
    sys.exit(code)


def complain(mistake: str) -> int:
    """Tells a mistake in one line, and gives the exit code."""
    remark(f"ncprior: {' '.join(mistake.split())}")
    return 2


@contextmanager
def arriving() -> Iterator[None]:
    """Sees that what is printed to stdout arrives, or says why not; if nobody wants it any more, ends quietly."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        if error.errno not in _NOT_PRINTED:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left would fail again when Python ends
        if error.errno == errno.EPIPE:
            sys.exit(1)
        reason = f"what was to be printed could not be written ({error.strerror})"
        raise UserError(f"{reason}; make room, or send it elsewhere") from error


_NOT_PRINTED = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of printing: where files are written, `ncprior.files` tells them."""


def _plain_warning(message: Any, category: type[Warning], *where: Any, **more: Any) -> str:
    """One line of what the user is told; others, which are for developers, say where they come from."""
    if category is UserWarning:
        return f"ncprior: {printable(' '.join(str(message).split()))}\n"
    what = (message, category, *where)
    return "".join(f"{printable(line)}\n" for line in _format_warning(*what, **more).splitlines())


_format_warning = warnings.formatwarning


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
        say(f"ncprior {__version__}")
        raise typer.Exit


@app.command("report")
@stoppable(KEPT)
def draw_report(folder: Annotated[Path, typer.Argument(help="Folder of a finished run.")]) -> None:
    """Draw figures and report of a run again, from its records alone.

    [bold]Example[/bold]

      ncprior report runs/toy
    """
    with ends_at_once():
        from ncprior.experiments.records import Records
        from ncprior.report.page import report

    with Records.open(folder).alone():
        say(f"report: {report(folder)}")
