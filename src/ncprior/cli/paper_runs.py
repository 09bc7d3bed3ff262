"""Parts that the commands ``ncprior paper ...`` share: running an experiment, the source of flights, all cores."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ncprior.cli.interrupts import RESUME, ends_at_once, stoppable
from ncprior.cli.options import split_names
from ncprior.terminal import say

if TYPE_CHECKING:
    from ncprior.cli.progress import Show
    from ncprior.experiments.paper import learning_curves, regression
    from ncprior.experiments.paper.flights import Source
    from ncprior.experiments.records import Records


def run_methods(
    name: str,
    config: "learning_curves.Config | regression.Config",
    run: "Callable[[Records, Show], None]",
    *,
    out: Path,
    resume: bool,
) -> None:
    """Run the methods of an experiment with a progress bar for each, and draw its page.

    Args:
        name: The experiment.
        config: Its configuration, which is written to the folder.
        run: Trains the methods that have not been recorded, given the records and a function that shows progress.
        out: The folder.
        resume: Whether to continue the run in this folder.
    """
    with ends_at_once():
        from ncprior.cli.progress import progress_bars
        from ncprior.experiments.records import Records
        from ncprior.experiments.runs import MethodFiles
        from ncprior.report.page import report

    with stoppable(RESUME), Records.running(out, name, dataclasses.asdict(config), resume=resume) as records:
        finished = [method for method in config.methods if MethodFiles(records, method).finished]
        with progress_bars(config.methods, finished) as show:
            run(records, show)
        say(f"report: {report(out)}")


def flight_source(data: str, split: str, planes: Path | None) -> "Source":
    """The source of flights from the options of a command, with absolute paths."""
    with ends_at_once():
        from ncprior.experiments.paper.flights import Source

    source, _, paths = data.partition(":")
    files = tuple(str(Path(path).expanduser().absolute()) for path in split_names(paths))
    return Source(source, files, split, str(planes.expanduser().absolute()) if planes else None)


def use_all_cores() -> None:
    """Make every core a device of JAX, so that seeds are spread over them. Call it before JAX computes anything.

    With one device, XLA would use all cores for every small network and gain nothing. Only commands call this: a
    library must not change these settings for its users.
    """
    flag = "--xla_cpu_multi_thread_eigen=false"
    if flag in os.environ.get("XLA_FLAGS", ""):
        return  # already done
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
    import jax

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jax.config.update("jax_num_cpu_devices", cores)
