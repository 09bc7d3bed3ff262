"""``python -m ncprior``: the command line."""

from ncprior.cli.main import main

main()
