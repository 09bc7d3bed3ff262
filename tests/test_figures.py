import numpy as np
import pytest

from ncprior.report.figures import Belief, Curve, draw_beliefs, draw_learning_curves, draw_robustness
from ncprior.report.simulate import Picks, draw_map, draw_simulation
from ncprior.report.styles import label

PANELS = ("train_rmse", "train_nlpd", "test_rmse", "test_nlpd")
SOME = {"mean": 1.0, "std": 0.1, "median": 1.0}
FAR = {"mean": 9.0, "std": 1.0, "median": 9.0}
RULE = {"batch": 1, "counts": [1, 2]} | {metric: {"mean": [2.0, 1.0], "std": [0.1, 0.1]} for metric in ("rmse", "nlpd")}
ONES, POINTS = np.ones(3), (np.zeros(2), np.zeros(2))
BELIEFS = dict.fromkeys(("det", "bbb+ncp"), Belief(np.arange(3.0), ONES, ONES, ONES, ONES, POINTS, POINTS))


def curve(*means, std=0.1):
    return Curve(np.arange(len(means)) + 10, np.array(means, float), np.full(len(means), std))


def test_methods_that_leave_the_panel_are_named():
    figure = draw_learning_curves({panel: {"bbb+ncp": curve(2, 1), "det": curve(2, 50)} for panel in PANELS})
    axis = figure.axes[2]
    assert axis.get_ylim()[1] < 5
    assert axis.texts[0].get_text() == "Det ends at 50.00 \u2191"


@pytest.mark.parametrize("narrow", [False, True])
def test_notes_stand_between_a_panel_and_its_title(narrow):
    """Where they cover neither curves nor the title nor another panel."""
    curves = {panel: {"bbb+ncp": curve(2, 1), "bbb": curve(2, 40), "det": curve(2, 50)} for panel in PANELS}
    robust = {"bbb+ncp": {("gaussian", size): dict.fromkeys(("test_rmse", "test_nlpd"), SOME) for size in (0.1, 0.2)}}
    for name in ("bbb", "det"):
        robust[name] = {
            ("", 0.0): {key: {"mean": 9.0, "std": 1.0, "median": 9.0} for key in ("test_rmse", "test_nlpd")}
        }
    for figure in (draw_learning_curves(curves, narrow=narrow), draw_robustness(robust, narrow=narrow)):
        figure.canvas.draw()
        boxes = [axis.get_window_extent() for axis in figure.axes]
        for axis in figure.axes:
            (note,) = axis.texts
            said, title = note.get_window_extent(), axis.title.get_window_extent()
            assert note.get_text().count("\n") == 1
            assert not any(said.overlaps(box) for box in boxes)
            assert not said.overlaps(title)


def test_panels_stack_on_a_narrow_page():
    for draw, of in (
        (draw_learning_curves, {panel: {"det": curve(2, 1)} for panel in PANELS}),
        (draw_beliefs, BELIEFS),
    ):
        wide, narrow = draw(of), draw(of, narrow=True)
        assert narrow.get_figwidth() < 0.5 * wide.get_figwidth()
        for figure in (wide, narrow):
            figure.canvas.draw()
        assert len({round(axis.get_window_extent().x0) for axis in narrow.axes}) == 1
        assert len({round(axis.get_window_extent().x0) for axis in wide.axes}) > 1


def test_curves_near_the_best_are_shown_whole():
    bump = Curve(np.arange(3), np.array([1.0, 2.5, 1.2]), np.full(3, 0.1))
    figure = draw_learning_curves({key: {"bbb+ncp": curve(2, 1.5, 1), "bbb": bump} for key in PANELS})
    assert figure.axes[0].get_ylim()[1] > 2.6


def test_a_method_whose_seeds_have_all_stopped_does_not_spoil_the_figure():
    nothing = Curve(np.array([10, 11]), np.array([1.0, np.nan]), np.array([0.1, np.nan]))
    for curves in ({"bbb": curve(2, 1), "det": nothing}, {"det": nothing}):
        figure = draw_learning_curves(dict.fromkeys(PANELS, curves))
        assert np.isfinite(figure.axes[0].get_ylim()).all()


def test_legends_have_the_baselines_that_are_drawn():
    both = ("test_rmse", "test_nlpd")
    robust = {"bbb+ncp": {("gaussian", size): dict.fromkeys(both, SOME) for size in (0.1, 0.2)}}
    robust["bbb"] = {("", 0.0): {"test_rmse": SOME, "test_nlpd": FAR}}
    robust["det"] = {("", 0.0): dict.fromkeys(both, FAR)}
    (legend,) = draw_robustness(robust).legends
    titles = [text.get_text() for text in legend.get_texts()]
    assert "BBB (median)" in titles
    assert "Det (median)" not in titles


def test_robustness_with_settings_that_have_stopped():
    fine, gone = {"mean": 1.0, "std": 0.1, "median": 1.0}, dict.fromkeys(("mean", "std", "median"), np.nan)
    table = {("gaussian", 0.1): dict.fromkeys(("test_rmse", "test_nlpd"), fine)}
    table["gaussian", 0.2] = dict.fromkeys(("test_rmse", "test_nlpd"), gone)
    baseline = {("", 0.0): dict.fromkeys(("test_rmse", "test_nlpd"), gone)}
    figure = draw_robustness({"bbb+ncp": table, "bbb": baseline})
    assert np.isfinite(figure.axes[0].get_ylim()).all()


@pytest.mark.parametrize("name", ["价格", "السعر", "😀 price ($)", "a\nb", "$x", "prix moyen (€)"])
def test_names_from_outside_are_drawn_without_warnings(name, tmp_path):
    """Warnings are errors here: about letters that the font does not have, among others."""
    figure = draw_simulation({name: {**RULE, "rule": name}}, label(name), 2)
    for kind in ("svg", "png", "pdf"):
        figure.savefig(tmp_path / f"figure.{kind}")
    assert len(figure.axes[0].get_ylabel().splitlines()) == 1


@pytest.mark.parametrize("narrow", [False, True])
def test_every_batch_size_has_panels_of_its_own_with_the_same_axes(narrow):
    large = RULE | {"batch": 5, "counts": [1, 6], "rmse": {"mean": [2.0, 0.1], "std": [0.1, 0.1]}}
    rules = {f"{rule}/{one['batch']}": {**one, "rule": rule} for one in (RULE, large) for rule in ("lcmd", "random")}
    figure = draw_simulation(rules, "y", 2, narrow=narrow)
    figure.canvas.draw()
    assert [axis.get_title() for axis in figure.axes] == ["1 label at a time"] * 2 + ["5 labels at a time"] * 2
    assert [len(axis.lines) for axis in figure.axes] == [2] * 4
    first, _, second, _ = figure.axes
    assert first.get_ylim() == second.get_ylim()
    assert first.get_ylim()[0] < 0.1 < 2.0 < first.get_ylim()[1]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["LCMD", "random"]


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("rules", [1, 2, 5])
def test_a_map_has_a_panel_for_each_rule(rules, narrow):
    rows = np.random.default_rng(0).normal(size=(50, 2))
    before = np.array([0, 0, 2, 2, 4])
    figure = draw_map(rows, [Picks(f"rule {i} ($)", rows[:5], before) for i in range(rules)], narrow=narrow)
    figure.canvas.draw()
    shown = [axis for axis in figure.axes if axis.get_title()]
    assert [axis.get_title() for axis in shown] == [rf"rule {i} (\$)" for i in range(rules)]
    for axis in shown:
        everywhere, begun, chosen = axis.collections
        assert [len(part.get_offsets()) for part in (everywhere, begun, chosen)] == [50, 2, 3]
        first, same, last = chosen.get_facecolors()
        np.testing.assert_array_equal(first, same)
        assert (first != last).any()


def test_labels_keep_what_the_font_has_and_escape_the_rest():
    assert label("prix moyen (€)") == "prix moyen (€)"
    assert label("Größe π") == "Größe π"
    assert label("価格 1") == r"\u4fa1\u683c 1"
    assert label("$^2$") == r"\$^2\$"
