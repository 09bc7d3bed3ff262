"""Help texts that list all registered rules for batches and scores of rows."""

from typer._click.core import Context
from typer._click.formatting import HelpFormatter
from typer.core import TyperArgument, TyperCommand, TyperOption

from ncprior.cli.interrupts import ends_at_once


class AcquisitionCommand(TyperCommand):
    """A command in whose help RULES and SCORES are replaced by the names in the registries.

    They are looked up only when help is printed, as this imports JAX.
    """

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the help, with the names of rules and scores and one line about each."""
        self.complete_help()
        super().format_help(ctx, formatter)

    def complete_help(self) -> None:
        """Add the names, and one line about each, to the help of the command and its options."""
        with ends_at_once():
            from ncprior.core.acquisition import SCORES, score_names
            from ncprior.tables.batches import RULES

        scores = {name: SCORES[name] for name in score_names()}
        for parameter in self.params:
            if isinstance(parameter, (TyperArgument, TyperOption)) and parameter.help:
                for word, entries in (("RULES", RULES), ("SCORES", scores)):
                    parameter.help = parameter.help.replace(word, ", ".join(entries))
        about, heading, examples = (self.help or "").partition("[bold]Example")
        for title, entries in (("Rules for batches", RULES), ("Scores of rows", scores)):
            lines = "\n\n".join(f"  {name}: {entry.help}" for name, entry in entries.items())
            about += f"[bold]{title}[/bold]\n\n{lines}\n\n"
        self.help = about + heading + examples
