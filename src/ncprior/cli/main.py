"""The entry point of the command ``ncprior``. It handles Ctrl-C before anything else is imported."""

import os


def main() -> None:
    """Run the command and end the process."""
    try:
        from ncprior.cli.interrupts import ends_at_once

        with ends_at_once():
            from ncprior.cli.app import run
        run()
    except KeyboardInterrupt:  # before or after the handlers of `run`
        os.write(2, b"ncprior: stopped\n")
        os._exit(130)
