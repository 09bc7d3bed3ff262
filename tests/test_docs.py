"""What the docs say about the presets is what they are."""

from pathlib import Path

from ncprior.core.settings import DIFFERENCES, NOT_FOLLOWED, PAPER, REFERENCE

DOCS = Path(__file__).parent.parent / "docs"


def short(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def test_the_table_of_presets_is_that_of_the_code():
    text = (DOCS / "presets.md").read_text()
    for name, (paper, reference) in DIFFERENCES.items():
        cells = [f"`{name}`", short(getattr(PAPER, name)), paper, short(getattr(REFERENCE, name)), reference]
        assert "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" in text


def test_what_is_not_followed_is_in_the_docs():
    text = (DOCS / "presets.md").read_text()
    assert list(NOT_FOLLOWED) == ["NLPD", "evaluation", "selection", "figures"]
    for subject, cells in NOT_FOLLOWED.items():
        assert f"| {' | '.join((subject, *cells))} |" in text
