"""The page of ``ncprior evaluate``: how well the predicted uncertainty agrees with the errors on a table."""

from collections.abc import Iterable
from functools import partial

import numpy as np

from ncprior.errors import UserError
from ncprior.experiments import evaluate
from ncprior.experiments.evaluate_results import Results, write_results
from ncprior.experiments.records import Records
from ncprior.experiments.variants import method_style, subject
from ncprior.report import evaluate_figures, evaluate_tables
from ncprior.report.claims.verdicts import FEWEST_SEEDS, all_of, judge, lower
from ncprior.report.differences import quick_note
from ncprior.report.headline import in_words, lead
from ncprior.report.sections import Picture, Section
from ncprior.report.styles import label

CHECKED = (0.2, 0.5, 0.8, 0.9, 0.95)
"""Levels of the intervals whose coverage the verdict checks."""
TOLERANCE = 0.05
"""How far the coverage of an interval may be from its level, in addition to sampling error."""
_SPLITS = {
    "random": "a tenth of the rows, drawn at random",
    "gap": "the middle third of the rows by one input: a gap in the training data",
    "tail": "the fifth of the rows with the largest values of one input",
    "time": "the last fifth of the rows by",
}
_TEST_ROWS = {"random": "test rows", "gap": "gap rows", "tail": "tail rows", "time": "later rows"}


def evaluate_section(records: Records) -> Section:
    """The section of a run: metrics by method, the calibration curve, error against uncertainty, and detection.

    Raises:
        UserError: If every run failed.
    """
    results = write_results(records)
    config, methods = results["config"], results["methods"]
    if not methods:
        raise UserError(f"{records.folder}: every run failed, the first one because {results['failed'][0]['failed']}")
    densities = evaluate_tables.densities(results)
    kind, _, column = config["split"].partition(":")
    runs = f"{len(results['splits'])} split{'s' * (len(results['splits']) > 1)}"
    runs += f" and {config['seeds']} training seeds" if config["seeds"] > 1 else ""
    intro = (
        f"{config['target']} predicted from {len(results['inputs'])} columns of {config['table']} "
        f"({results['rows']:,} rows). Test rows: {_SPLITS[kind]}{f' {column}' * bool(column)}; {runs}. "
        f"{verdict(results, densities)}"
    )
    failed = [
        f"{method_style(run['method']).title}, {run['split']}, seed {run['seed']}: {run['failed']}"
        for run in results["failed"]
    ]
    differences = quick_note(config, evaluate.QUICK, evaluate.QUICK_ESTIMATOR)
    detects = any("shuffled" in of or "detection" in of for of in methods.values())
    words = ("detection", "shuffled and far rows", "familiarity") if detects else ()
    return Section(
        f"Trust: {config['target']}",
        intro,
        _pictures(results, _TEST_ROWS[kind]),
        evaluate_tables.tables(results, _TEST_ROWS[kind]),
        [],
        failed,
        records,
        differences,
        headline=tuple(in_words(results)),
        terms=("typical error", "coverage", "NLPD", "CRPS", "rank correlation", "risk-coverage", *words),
        lead=lead(results),
    )


def _pictures(results: Results, test_rows: str) -> list[Picture]:
    methods, target = results["methods"], results["config"]["target"]
    unit = label(target)
    trust = Picture(
        "trust",
        "How far the uncertainty can be trusted",
        "Calibration: the share of test rows inside their central intervals, which should equal the level; below the "
        "diagonal a method is overconfident. Error against uncertainty: the rows in ten groups from the least to the "
        "most uncertain, with the predicted standard deviation and the error of each group (both in units of "
        f"{target}); above the diagonal the errors are larger than predicted. A method with the same uncertainty for "
        "every row is a single point. Refusing: the error of the rows that are kept if those with the largest "
        "predicted standard deviation are refused; if the curve rises, a method is unsure where it is wrong.",
        partial(evaluate_figures.draw_trust, methods, unit),
    )
    found = [trust]
    if evaluate_figures.detected(methods):
        caption = (
            "The probability that a row unlike those of training is more doubtful than one like them; 0.5 is chance. "
            "Lines: standard deviation over splits and seeds. Shuffled: each column permuted by itself, so that "
            "combinations are new. Far: one number moved by four standard deviations. What each method goes by is in a "
            "table below."
        )
        draw = partial(evaluate_figures.draw_detection, methods, test_rows)
        found.append(Picture("detection", "Does it notice rows unlike those of training?", caption, draw))
    if any(of["groups"] for of in methods.values()):
        caption = (
            "Rows that were not trained on, in groups by familiarity, from those unlike the training rows (left) to "
            f"those much like them; groups of fewer than {evaluate_figures.FEWEST_ROWS} rows are not drawn. Coverage "
            "should be 0.9 everywhere. Width against need: the half width of the 90% intervals over that which would "
            "have held 90% of the rows; above 1 intervals are wider than they need be, below it too narrow."
        )
        draw = partial(evaluate_figures.draw_familiarity, methods)
        found.append(Picture("familiarity", "Are intervals as wide as they need be?", caption, draw))
    return found


def verdict(results: Results, densities: dict[str, np.ndarray]) -> str:
    """A sentence on what the numbers of the first network mean: its calibration, and its rank among the methods.

    Args:
        results: The results of the run.
        densities: NLPD of each method on each split ``[splits]``.
    """
    methods = results["methods"]
    name = subject(methods)
    of, title = methods[name], method_style(name).title
    rows = min(results["rows"], sum(split["test"] for split in results["splits"]))
    sentence = f"Of the rows, {of['coverage']['mean']:.0%} were inside the 90% intervals of {title}"
    sure, unsure = off_levels(of["calibration"], rows)
    if not sure and not unsure:
        sentence += (
            f", and its intervals of {_listed(f'{level:.0%}' for level in CHECKED)} are close to what they promise"
        )
    for kind, levels in (("sure of itself", sure), ("unsure", unsure)):
        if levels:
            held = _listed(f"{level:.0%} ({share:.0%} of the rows are inside)" for level, share in levels.items())
            sentence += f"; it is too {kind} at {held}"
    failed = [run["method"] for run in results["failed"]]
    if count := failed.count(name):
        sentence += f"; {count} of its {count + of['runs']} runs failed"
    if len(methods) == 1:
        return f"{sentence}."
    best = min(methods, key=lambda other: _best_first(densities[other]))
    others = [lower(densities[best], densities[other]) for other in methods if other != best]
    leader = "it has" if best == name else f"{method_style(best).title} has"
    if all_of(judge(other) for other in others) == "holds":
        return f"{sentence}; {leader} the best density of {len(methods)} methods."
    splits = len(densities[best])
    if splits < FEWEST_SEEDS:
        why = f"{'one split settles' if splits == 1 else f'{splits} splits settle'} nothing"
    else:
        why = f"it is the best on {int(np.all(others, axis=0).sum())} of {splits} splits"
    return f"{sentence}; {leader} the best mean density of {len(methods)} methods, which is unclear, as {why}."


def off_levels(calibration: dict[str, float], rows: int) -> tuple[dict[float, float], dict[float, float]]:
    """Levels whose intervals contain too few rows, and those whose contain too many, each with its coverage.

    A coverage is off if it differs from the level by more than `TOLERANCE` and two standard errors.

    Args:
        calibration: Coverage by level.
        rows: Number of test rows, from which the standard error follows.
    """
    sure: dict[float, float] = {}
    unsure: dict[float, float] = {}
    for level in CHECKED:
        share, error = calibration[str(level)], (level * (1 - level) / rows) ** 0.5
        if abs(share - level) > TOLERANCE + 2 * error:
            (sure if share < level else unsure)[level] = share
    return sure, unsure


def _best_first(values: np.ndarray) -> tuple[int, float]:
    """A sort key of methods: those that failed on the fewest splits first, then by mean NLPD."""
    finished = values[~np.isnan(values)]
    return len(values) - len(finished), float(finished.mean()) if len(finished) else np.inf


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
