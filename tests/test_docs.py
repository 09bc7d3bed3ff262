"""What the docs say about presets and modules is what they are, and what they show runs."""

import re
from pathlib import Path

import pytest

from ncprior.core.settings import DIFFERENCES, NOT_FOLLOWED, PAPER, REFERENCE

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GENERATED = {"_build", "api", "commands"}
MARKDOWN = [
    page for page in (*ROOT.glob("*.md"), *DOCS.rglob("*.md")) if not GENERATED & set(page.relative_to(ROOT).parts)
]


def short(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def test_the_table_of_presets_is_that_of_the_code():
    text = (DOCS / "results" / "presets.md").read_text()
    for name, (paper, reference) in DIFFERENCES.items():
        cells = [f"`{name}`", short(getattr(PAPER, name)), paper, short(getattr(REFERENCE, name)), reference]
        assert "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" in text


def test_what_is_not_followed_is_in_the_docs():
    text = (DOCS / "results" / "presets.md").read_text()
    assert list(NOT_FOLLOWED) == ["NLPD", "evaluation", "selection", "figures"]
    for subject, cells in NOT_FOLLOWED.items():
        assert f"| {' | '.join((subject, *cells))} |" in text


def test_the_design_has_a_line_for_every_module_and_for_no_other():
    source = ROOT / "src" / "ncprior"
    modules = {page.relative_to(source).as_posix() for page in source.rglob("*.py") if page.name != "__init__.py"}
    text = (DOCS / "design.md").read_text()
    described = re.findall(r"^\| `([\w/]+\.py)` \|", text[text.index("## Modules") :], re.MULTILINE)
    assert sorted(described) == sorted(modules), "bring the table in docs/design.md up to date"


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_lines_of_text_are_wrapped(page):
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if not (fenced or line.startswith(("|", "#", "![", "$$")) or " " not in line.strip("- ")):
            assert len(line) <= 105, f"line {number} has {len(line)} characters"


def test_links_between_pages_lead_somewhere():
    for page in MARKDOWN:
        for target in re.findall(r"\]\(([^)#:]+\.(?:md|png|cff))", page.read_text()):
            generated = GENERATED & set(Path(target).parts)
            assert generated or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80
