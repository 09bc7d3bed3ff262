"""Pages that are made from the code when the docs are built: one for each command, one for each module of the API.

What they say is what the commands and the docstrings say, so they cannot drift apart.
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
from sphinx.application import Sphinx

import ncprior
from ncprior.cli.acquisition_help import AcquisitionCommand
from ncprior.cli.app import app as commands
from ncprior.core.settings import PRESETS

API = {
    "ncprior.core": "The paper: distributions, predictions, priors, networks, objectives, methods and training.",
    "ncprior.tables": "The estimator for tables, and what it is made of.",
    "ncprior.torch": "NCP for PyTorch modules; all names of use are in `ncprior.torch` itself.",
    "ncprior.data": "Data sets, people's tables, and their encoding.",
    "ncprior.campaigns": "Label campaigns: storage, leases, labels, audits, worker.",
}
"""The folders of the API reference, and what is in them."""


def write_pages(app: Sphinx) -> None:
    """Writes both kinds of pages into the source folder, where Sphinx finds them."""
    source = Path(app.srcdir)
    write(source / "commands", dict(command_pages()))
    write(source / "api", dict(api_pages()))


def write(folder: Path, pages: dict[str, str]) -> None:
    """Makes a folder hold these pages and no others; pages that stay the same keep their date."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        page = folder / name
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


# Commands


def command_pages() -> Iterator[tuple[str, str]]:
    """A page for each command, and an index of them."""
    found = list(leaves(typer.main.get_command(commands), None, "ncprior"))
    table = "\n".join(f"| [`{name}`]({page_name(name)}) | {summary(command)} |" for name, command, _ in found)
    contents = "\n".join(Path(page_name(name)).stem for name, _, _ in found)
    yield (
        "index.md",
        "# Commands\n\nEvery command has `--help` with the same text. Results for people go to stdout; with `--json`,\n"
        "one JSON object for scripts. Progress goes to stderr. Exit codes: 0 done, 2 a mistake in what was given\n"
        "(one line says what to do), 130 stopped by Ctrl-C, 1 anything else.\n\n"
        f"| command | what it does |\n| --- | --- |\n{table}\n\n```{{toctree}}\n:hidden:\n\n{contents}\n```\n",
    )
    for name, command, context in found:
        yield page_name(name), command_page(name, command, context)


def leaves(command: Any, parent: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    """The commands below this one with their full names and contexts."""
    context = command.context_class(command, info_name=name.split()[-1], parent=parent)
    if isinstance(command, AcquisitionCommand):
        command.complete_help()  # the names of rules and scores
    if not hasattr(command, "commands"):
        yield name, command, context
        return
    for word, child in command.commands.items():
        yield from leaves(child, context, f"{name} {word}")


def page_name(command: str) -> str:
    return "-".join(command.split()[1:]) + ".md"


def summary(command: Any) -> str:
    return paragraphs(command)[0][0]


def command_page(name: str, command: Any, context: Any) -> str:
    about, examples = paragraphs(command)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    parts = [f"# {name}", about[0], fenced(usage), *map(entry, about[1:])]
    if examples:
        parts += ["## Examples", fenced("\n".join(examples))]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    for title, params in (("Arguments", arguments), ("Options", options)):
        if params:
            parts += [f"## {title}", *(described(param, context) for param in params)]
    return "\n\n".join(parts) + "\n"


def paragraphs(command: Any) -> tuple[list[str], list[str]]:
    """The paragraphs of a command's help, and the lines of its examples."""
    about, examples, in_examples = [], [], False
    for paragraph in inspect.cleandoc(command.help).split("\n\n"):
        if paragraph.startswith("[bold]Example"):
            in_examples = True
        elif in_examples:
            examples.append(" ".join(paragraph.split()))
        else:
            about.append(plain(paragraph.strip()))
    return about, examples


def entry(paragraph: str) -> str:
    """A paragraph; one of the form ``name: text``, such as that of a rule, as an entry of a definition list."""
    name, colon, text = paragraph.partition(": ")
    return f"`{name}`\n: {text}" if colon and name.isidentifier() and name.islower() else paragraph


def described(param: Any, context: Any) -> str:
    """An argument or option as an entry of a definition list."""
    name, text = param.get_help_record(context)
    return f"`{name}`\n: {plain(text)}"


def plain(markup: str) -> str:
    """Rich's markup as Markdown text."""
    text = re.sub(r"\[/?(bold|italic|dim)\]", "", markup).replace("\\[", "[")
    text = re.sub(r"\s+", " ", text)
    return re.sub(r"[\\<*|\[\]]", lambda letter: "&lt;" if letter[0] == "<" else f"\\{letter[0]}", text)


def fenced(text: str) -> str:
    return f"```console\n{text}\n```"


# API


def api_pages() -> Iterator[tuple[str, str]]:
    """A page for the public names, and one for each module."""
    folders = {folder: list(modules(folder)) for folder in API}
    parts = [
        "# API reference",
        "Everything here comes from the docstrings. The names that most people need are in `ncprior` itself; they are\n"
        "imported when they are first used.",
        "| name | what it is |\n| --- | --- |\n" + "\n".join(public_names()),
    ]
    for folder, names in folders.items():
        rows = "\n".join(f"| [`{name}`]({name}.md) | {first_sentence(name)} |" for name in names)
        listed = "\n".join(names)
        parts += [
            f"## {folder}\n\n{API[folder]}\n\n| module | what is in it |\n| --- | --- |\n{rows}",
            f"```{{toctree}}\n:hidden:\n:caption: {folder}\n\n{listed}\n```",
        ]
    yield "index.md", "\n\n".join(parts) + "\n"
    for name in (name for names in folders.values() for name in names):
        directive = f".. automodule:: {name}\n   :members:\n   :show-inheritance:\n"
        yield f"{name}.md", f"# {name}\n\n```{{eval-rst}}\n{directive}```\n"


def modules(folder: str) -> Iterator[str]:
    """The modules of a folder and of the folders in it."""
    package = importlib.import_module(folder)
    for module in pkgutil.walk_packages(package.__path__, f"{folder}."):
        if not module.ispkg and ".migrations." not in module.name:  # which only Alembic can import
            yield module.name


def public_names() -> Iterator[str]:
    for name in sorted(set(ncprior.__all__) - {"__version__"}):
        value: Any = getattr(ncprior, name)
        if value is PRESETS:  # a dictionary, which knows neither its place nor its meaning
            target, text = "ncprior.core.settings.PRESETS", "Settings by name: of the paper's text, and of its code."
        else:
            target, text = f"{value.__module__}.{value.__qualname__}", inspect.getdoc(value) or ""
        yield f"| {{py:obj}}`ncprior.{name} <{target}>` | {in_table(text.splitlines()[0])} |"


def first_sentence(module: str) -> str:
    return in_table((importlib.import_module(module).__doc__ or "").strip().splitlines()[0])


def in_table(text: str) -> str:
    """A line of reStructuredText in a Markdown table."""
    return text.replace("``", "`").replace("|", "\\|")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
