"""Figures of a campaign: its learning curve on audit rows, and where uncertainty is left."""

import io
import threading
from collections.abc import Sequence

from matplotlib.figure import Figure

from ncprior.campaigns.audit import Scores
from ncprior.campaigns.left import LeftUncertainty
from ncprior.report.styles import UNCERTAINTY, figure_style, label, new_panels

_LINE = "#0072B2"
_drawing = threading.Lock()  # Matplotlib's settings are those of the whole process


def learning_curve(points: Sequence[Scores], target: str, wanted: float | None, *, narrow: bool) -> bytes:
    """RMSE with its interval, and coverage, over labels; ``wanted`` is the error of a stop rule."""
    with _drawing, figure_style():
        figure, (errors, coverage) = new_panels(2, 2.3, narrow=narrow, widths=(2, 1))
        labels = [point.labels for point in points]
        rmse = [point.rmse for point in points]
        below = [point.rmse - point.rmse_low for point in points]
        above = [min(point.rmse_high, 4 * point.rmse) - point.rmse for point in points]
        errors.errorbar(labels, rmse, yerr=[below, above], color=_LINE, marker="o", markersize=3.5, capsize=2, lw=1.3)
        if wanted is not None:
            errors.axhline(wanted, color="#555555", linestyle="--", lw=0.9)
            errors.annotate("stop rule", (1, wanted), xycoords=("axes fraction", "data"), ha="right", va="bottom",
                            fontsize=6.5, color="#555555")  # fmt: skip
        errors.set_ylim(0)
        errors.set_title(f"RMSE of {label(target)} on audit rows, 90% interval")
        coverage.plot(labels, [100 * point.coverage for point in points], color=_LINE, marker="o", markersize=3.5)
        coverage.axhline(90, color="#555555", linestyle="--", lw=0.9)
        coverage.set_ylim(0, 104)
        coverage.set_title("% within the 90% interval")
        for axis in (errors, coverage):
            axis.set_xlabel("labels that the model had learned from")
            if len(set(labels)) == 1:
                axis.set_xlim(0, 2 * labels[0])
        return _svg(figure)


def left_uncertainty(left: LeftUncertainty, target: str, *, narrow: bool) -> bytes:
    """The average uncertainty in parts of the columns in which it differs most."""
    with _drawing, figure_style():
        columns = left["columns"]
        figure, axes = new_panels(len(columns), 2.3, narrow=narrow)
        for axis, column in zip(axes, columns, strict=True):
            bars = [(part["name"], value) for part in column["parts"] if (value := part["uncertainty"]) is not None]
            axis.barh(range(len(bars)), [value for _, value in bars], color=UNCERTAINTY, height=0.75)
            axis.set_yticks(range(len(bars)), [label(name)[:18] for name, _ in bars])
            axis.invert_yaxis()
            axis.set_title(label(column["column"])[:30])
            axis.set_xlabel(f"uncertainty of {label(target)[:30]}")
        return _svg(figure)


def _svg(figure: Figure) -> bytes:
    sink = io.BytesIO()
    figure.savefig(sink, format="svg", metadata={"Date": None})
    return sink.getvalue()
