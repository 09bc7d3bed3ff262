"""What the docs say about the presets is what they are."""

from pathlib import Path

from ncprior.presets import DIFFERENCES, PAPER, REFERENCE

DOCS = Path(__file__).parent.parent / "docs"


def short(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def test_the_table_of_presets_is_that_of_the_code():
    text = (DOCS / "presets.md").read_text()
    for name, (paper, reference) in DIFFERENCES.items():
        cells = [f"`{name}`", short(getattr(PAPER, name)), paper, short(getattr(REFERENCE, name)), reference]
        assert "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" in text
