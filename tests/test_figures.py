import numpy as np

from ncprior.report.figures import Curve, draw_learning_curves, draw_robustness

PANELS = ("train_rmse", "train_nlpd", "test_rmse", "test_nlpd")


def curve(*means, std=0.1):
    return Curve(np.arange(len(means)) + 10, np.array(means, float), np.full(len(means), std))


def test_methods_that_leave_the_panel_are_named():
    figure = draw_learning_curves({panel: {"bbb+ncp": curve(2, 1), "det": curve(2, 50)} for panel in PANELS})
    axis = figure.axes[2]
    assert axis.get_ylim()[1] < 5
    assert axis.texts[0].get_text() == "Det ends at 50.00 \u2191"


def test_a_method_whose_seeds_have_all_stopped_does_not_spoil_the_figure():
    nothing = Curve(np.array([10, 11]), np.array([1.0, np.nan]), np.array([0.1, np.nan]))
    for curves in ({"bbb": curve(2, 1), "det": nothing}, {"det": nothing}):
        figure = draw_learning_curves(dict.fromkeys(PANELS, curves))
        assert np.isfinite(figure.axes[0].get_ylim()).all()


def test_robustness_with_settings_that_have_stopped():
    fine, gone = {"mean": 1.0, "std": 0.1, "median": 1.0}, dict.fromkeys(("mean", "std", "median"), np.nan)
    table = {("gaussian", 0.1): dict.fromkeys(("test_rmse", "test_nlpd"), fine)}
    table["gaussian", 0.2] = dict.fromkeys(("test_rmse", "test_nlpd"), gone)
    baseline = {("", 0.0): dict.fromkeys(("test_rmse", "test_nlpd"), gone)}
    figure = draw_robustness({"bbb+ncp": table, "bbb": baseline})
    assert np.isfinite(figure.axes[0].get_ylim()).all()
