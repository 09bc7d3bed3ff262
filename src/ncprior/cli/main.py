"""Where the command ``ncprior`` begins: so early that Ctrl-C is handled while everything else is imported."""

import os


def main() -> None:
    """Runs the command and ends the process."""
    try:
        from ncprior.cli.interrupts import ends_at_once

        with ends_at_once():
            from ncprior.cli.app import run
        run()
    except KeyboardInterrupt:  # in the few milliseconds around the lines above, when nothing has begun or all is done
        os.write(2, b"ncprior: stopped\n")
        os._exit(130)
