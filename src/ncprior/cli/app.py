"""The command ``ncprior``: a thin layer that turns options into configurations and errors into one line."""

import errno
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from typer._click.exceptions import ClickException

from ncprior import __version__
from ncprior.cli.acquisition_help import AcquisitionCommand
from ncprior.cli.campaign import campaign
from ncprior.cli.evaluate import evaluate
from ncprior.cli.fit import fit
from ncprior.cli.interrupts import KEPT, Stopped, ends_at_once, stoppable
from ncprior.cli.merge import merge
from ncprior.cli.paper import paper
from ncprior.cli.predict import predict
from ncprior.cli.simulate import simulate
from ncprior.cli.suggest import suggest
from ncprior.errors import UserError
from ncprior.tables.program_files import cache_folder
from ncprior.terminal import printable, remark, say

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Neural regression that knows what it does not know, and says what to label next.",
)
for command in (fit, predict, suggest, merge, evaluate, simulate):
    app.command(cls=AcquisitionCommand if command in (suggest, simulate) else None)(command)
app.add_typer(paper, name="paper")
app.add_typer(campaign, name="campaign")


def run() -> NoReturn:
    """Run the command and end the process. A `UserError` becomes one line on stderr and exit code 2."""
    keep_programs()
    warnings.formatwarning = _plain_warning
    # Of programs that JAX cannot keep, on a full disk for example: no matter of the command's.
    warnings.filterwarnings("ignore", "Error (writing|reading) persistent compilation cache")
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
        # Without cleaning up: JAX may still compute in other threads, on which a normal exit crashes or hangs.
        os._exit(130)
    except Exception:
        import traceback

        for line in traceback.format_exc().splitlines():
            remark(line)
        code = 1
    sys.exit(code)


def complain(mistake: str) -> int:
    """Print a mistake as one line, and return the exit code."""
    remark(f"ncprior: {' '.join(mistake.split())}")
    return 2


@contextmanager
def arriving() -> Iterator[None]:
    """Flush stdout at the end. If that fails, raise a `UserError`; if the reader of a pipe has gone, exit quietly."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        if error.errno not in _NOT_PRINTED:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the rest does not fail again when Python exits
        if error.errno == errno.EPIPE:
            sys.exit(1)
        reason = f"what was to be printed could not be written ({error.strerror})"
        raise UserError(f"{reason}; make room, or send it elsewhere") from error


_NOT_PRINTED = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of printing. Those of writing files are handled by `ncprior.files`."""


def _plain_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A `UserWarning` as one line. Other warnings, which are for developers, say where they come from."""
    if category is UserWarning:
        return f"ncprior: {printable(' '.join(str(message).split()))}\n"
    text = _format_warning(message, category, filename, lineno, line)
    return "".join(f"{printable(part)}\n" for part in text.splitlines())


_format_warning = warnings.formatwarning


def keep_programs() -> None:
    """Keep compiled programs of experiments between runs, in the cache folder unless JAX has another setting.

    JAX reads these settings when it is imported, so this must be called first. Programs of estimators are kept by
    `ncprior.tables.compiled`.
    """
    cache = cache_folder()
    if cache is None:
        return
    folder = cache / "programs"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):
        return  # the folder cannot be made; programs are compiled each time
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    # If the disk is full, only time is lost here; writing results reports it.
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
    """Draw the figures and the report of a run again from its records.

    [bold]Example[/bold]

      ncprior report runs/toy
    """
    with ends_at_once():
        from ncprior.experiments.records import Records
        from ncprior.report.page import report

    with Records.open(folder).alone():
        say(f"report: {report(folder)}")
