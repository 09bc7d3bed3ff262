"""`NCPRegressor`: NCP as a scikit-learn estimator for tables of any kind."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, overload

import jax
import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, validate_data

from ncprior.core.acquisition import Score
from ncprior.core.input_priors import InputPrior
from ncprior.core.methods import Method
from ncprior.data.encoding import Encoder
from ncprior.data.frames import as_table, is_frame
from ncprior.data.labelled import check_inputs
from ncprior.errors import UserError
from ncprior.processes import check_process
from ncprior.tables import saving
from ncprior.tables.arguments import TableLike, TargetsLike, plain_numbers, targets_of, unlabelled_rows, weighted
from ncprior.tables.batch_features import output_weights_for, sample_functions
from ncprior.tables.batches import DEFAULT_RULE
from ncprior.tables.calibration import Calibration
from ncprior.tables.choice import Request, choose, excluded_rows
from ncprior.tables.constraints import Constraints
from ncprior.tables.fitted import Fitted
from ncprior.tables.fitting import continue_fit, fit
from ncprior.tables.options import Arguments, FitOptions
from ncprior.tables.predictions import Distribution
from ncprior.tables.programs import TrunkFactory
from ncprior.tables.progress import FitProgress, progress_bar
from ncprior.tables.recipe import LabelledTable
from ncprior.tables.search import Validation
from ncprior.tables.unlabelled import draw

RandomState: TypeAlias = int | np.random.RandomState | None
"""A seed as scikit-learn takes it."""


class NCPRegressor(RegressorMixin, BaseEstimator):
    """Regression by an ensemble of neural networks that are uncertain away from the data.

    The uncertainty comes from noise contrastive priors (Hafner et al., 2019): networks are trained to be certain at
    the training rows, and uncertain at the same rows with noise. `fit` first holds out some rows, which choose the
    number of training steps and calibrate the predictions, and then trains new networks on all rows. Parameters and
    settings that have no effect are refused.

    Args:
        method: ``ncp`` learns mean and noise from the targets, and the prior by separate networks, trained on the
            inputs alone: so the prior does not move the mean. The others are models of the paper, in which one network
            learns all: ``det``, ``det+ncp``, ``bbb``, ``bbb+ncp``, ``odc+ncp``; or ``deep+ncp`` (a belief over every
            layer), or a `Method` of your own.
        hidden: Units of each hidden layer.
        members: Networks in the ensemble. Every second one also gets quantile features of the columns, which makes it
            more accurate on the data; the others are more careful away from it.
        learning_rate: Learning rate of Adam.
        batch_size: Rows in a mini batch; None chooses from 64 to 512 by the number of rows.
        epochs: Passes over the training rows; None finds the number by `early_stopping`.
        early_stopping: Whether to hold out rows at first, to choose the number of steps and to calibrate. Without it,
            and without ``epochs``, training takes 1,000 steps.
        validation_fraction: Share of the rows that is held out at random for that, at most 0.3; three times as much, or
            half of the rows, is held out by the values of a random column, within a range or at one of its ends.
        conformal_fraction: Share of the rows, at most 0.5, that nothing is learned from: they give the intervals of
            ``predict_distribution(X).interval(0.9, guaranteed=True)`` a guarantee without a condition. With 0, these
            intervals come from the rows that early stopping held out, and the guarantee holds as long as the networks
            that have then learned from all rows are no worse than those that had not. Training that goes on ends the
            guarantee, and wants 0 here.
        min_rows: Fewest rows that `fit` accepts. Nothing can be learned from fewer than 3, but active learning may
            start with them.
        gamma: Weight of the noise contrastive prior; 0 for no prior. None takes 1 for ``ncp``, whose prior held-out
            rows calibrate, and 10 for the others. ``odc+ncp`` has no such weight (Equation 9).
        gamma_per_label: Whether gamma is divided by the number of rows, so that the prior fades with more labels. It
            has no meaning for ``ncp``.
        input_prior: ``radial``, ``gaussian`` or ``uniform`` noise on the numbers, or a function
            ``(inputs, *, key) -> noised`` of the encoded rows, see `ncprior.core.input_priors`.
        input_scale: Standard deviation of that noise, in standard deviations of a column: one number, or a dictionary
            by the name of the column; columns that it does not name have 2.
        output_scale: Standard deviation of the output prior, in standard deviations of the target: the uncertainty far
            from all training rows.
        flip: Probability that the input noise changes a category or a flag.
        trunk: A function ``(inputs, *, key) -> module`` that makes a trunk of your own, in place of hidden layers.
        settings: Other fields of `ncprior.core.settings.Settings` by name.
        warm_start: Whether `fit` starts from the present weights instead of new ones, for tables that have grown.
            Parameters may have changed, except for those that determine the weights: method, hidden, members, trunk.
        random_state: Seed, or a `numpy.random.RandomState`; None draws one.
        verbose: Whether to draw a progress bar on stderr.
        callbacks: Functions that are called with a `FitProgress` several times during training.

    Attributes:
        fitted_: The trained ensemble, a `ncprior.tables.fitted.Fitted`. The attributes below are parts of it.
        encoder_: The encoding of columns as numbers: kind and treatment of each.
        calibration_: A `Calibration`: ``noise_scale``, ``uncertainty_scale``, ``share`` of each member and others.
        steps_: Training steps of each member. Members whose loss was not finite are left out.
        validation_: ``rmse``, ``nlpd`` and 90% ``coverage`` on held-out rows, and the number of ``rows``; None if no
            rows were held out, or training went on since.
        n_rows_: Number of training rows; a row whose weight is a count of three is three of them.
        target_names_: Names of the outputs, if y had any.
        target_shift_: Mean of each output.
        target_scale_: Standard deviation of each output.
        fit_seconds_: Seconds of the last training.
        n_features_in_: Number of columns of X.
        feature_names_in_: Their names, if X had any.

    >>> X = np.linspace(-1, 1, 40)[:, None]
    >>> model = NCPRegressor(members=2, epochs=20, random_state=0).fit(X, np.sin(3 * X[:, 0]))
    >>> mean, std = model.predict(X, return_std=True)
    >>> near, far = model.predict_distribution([[0.0], [9.0]]).uncertainty
    >>> bool(near < far)
    True
    >>> model.suggest(np.linspace(-4, 4, 9)[:, None], n=2, random_state=0).shape
    (2,)
    """

    def __init__(
        self,
        method: str | Method = "ncp",
        *,
        hidden: Sequence[int] = (128, 128),
        members: int = 8,
        learning_rate: float = 3e-3,
        batch_size: int | None = None,
        epochs: int | None = None,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        conformal_fraction: float = 0.0,
        min_rows: int = 3,
        gamma: float | None = None,
        gamma_per_label: bool = True,
        input_prior: str | InputPrior = "radial",
        input_scale: float | dict[str, float] = 2.0,
        output_scale: float = 1.0,
        flip: float = 0.1,
        trunk: TrunkFactory | None = None,
        settings: dict[str, Any] | None = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        verbose: bool = False,
        callbacks: Sequence[Callable[[FitProgress], None]] = (),
    ) -> None:
        self.method = method
        self.hidden = hidden
        self.members = members
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.epochs = epochs
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.conformal_fraction = conformal_fraction
        self.min_rows = min_rows
        self.gamma = gamma
        self.gamma_per_label = gamma_per_label
        self.input_prior = input_prior
        self.input_scale = input_scale
        self.output_scale = output_scale
        self.flip = flip
        self.trunk = trunk
        self.settings = settings
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def fit(
        self,
        X: TableLike,  # noqa: N803
        y: TargetsLike,
        sample_weight: ArrayLike | None = None,
        X_unlabelled: TableLike | None = None,  # noqa: N803
    ) -> "NCPRegressor":
        """Train the ensemble.

        Args:
            X: Rows: an array, a data frame or an Arrow table. Text and missing values are fine.
            y: Targets, one or several for each row.
            sample_weight: Weights of the rows; 0 leaves a row out. Only proportions matter: ``w`` and ``2 w`` give the
                same model, so that weights that are all 2 are no weights. Weights in the proportions of whole numbers
                up to 10 are counts: with weights 1 and 3, or 0.5 and 1.5, the second row stands for three equal rows.
                Other weights are relative. A row that is to count as more than ten labels must be repeated.
            X_unlabelled: Rows without targets, with the columns of X, such as those that will be predicted: the model
                learns to be unsure where they are and the rows of X are not. For the method ``ncp``; at most 16,384 of
                them, drawn at random, are used.

        Returns:
            The estimator itself.

        Raises:
            UserError: If parameters, rows or targets have no meaning.
        """
        resume = self.warm_start and hasattr(self, "fitted_")
        return self._learn(X, y, sample_weight, unlabelled=X_unlabelled, resume=resume)

    def fit_subset(
        self,
        X: TableLike,  # noqa: N803
        y: TargetsLike,
        X_unlabelled: TableLike | None = None,  # noqa: N803
    ) -> "NCPRegressor":
        """`fit` for some rows of a table that was checked as a whole by `ncprior.data.labelled.check_inputs`.

        `fit` refuses tables with columns that look like mistakes. A few rows of a good table may look like that, too.

        Args:
            X: Rows.
            y: Their targets.
            X_unlabelled: Rows without targets, see `fit`.

        Returns:
            The estimator itself.
        """
        return self._learn(X, y, unlabelled=X_unlabelled, check=False)

    def partial_fit(
        self,
        X: TableLike,  # noqa: N803
        y: TargetsLike,
        sample_weight: ArrayLike | None = None,
        X_unlabelled: TableLike | None = None,  # noqa: N803
    ) -> "NCPRegressor":
        """Train one epoch on new rows, from the present weights. The first call is a `fit` of one epoch.

        Args:
            X: New rows, with the same columns as before.
            y: Their targets.
            sample_weight: Their weights, see `fit`: proportions among the new rows. For the prior, each row of earlier
                calls counts as one label, whatever its relative weight was.
            X_unlabelled: Rows without targets, see `fit`; to be given in every call, or in none.

        Returns:
            The estimator itself.
        """
        return self._learn(X, y, sample_weight, unlabelled=X_unlabelled, resume=hasattr(self, "fitted_"), epochs=1)

    @overload
    def predict(self, X: TableLike, return_std: Literal[False] = False) -> np.ndarray: ...  # noqa: N803

    @overload
    def predict(self, X: TableLike, return_std: Literal[True]) -> tuple[np.ndarray, np.ndarray]: ...  # noqa: N803

    def predict(self, X: TableLike, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:  # noqa: N803
        """Predict the mean of the target.

        Args:
            X: Rows with the columns of training.
            return_std: Whether to return the standard deviation, too: uncertainty and noise together.

        Returns:
            The mean ``[rows]``, or ``[rows, outputs]`` if y had two axes; with ``return_std``, mean and standard
            deviation.
        """
        prediction = self.predict_distribution(X)
        return (prediction.mean, prediction.std) if return_std else prediction.mean

    def predict_distribution(self, X: TableLike) -> Distribution:  # noqa: N803
        """Predict the distribution of the target: mean, noise, uncertainty, intervals, densities, in its unit.

        Args:
            X: Rows with the columns of training.
        """
        self._check_fitted()
        rows = plain_numbers(X, self.encoder_, getattr(self, "feature_names_in_", None))
        if rows is None:
            return self.predict_piece(self._table(X))
        return Distribution.of_encoded(self.fitted_, self.encoder_.transform_numbers(rows))

    def predict_piece(self, table: pa.Table, first_row: int = 1) -> Distribution:
        """Predict the rows of a piece of a larger table.

        Args:
            table: Rows that have the columns of training, found by their names; other columns are ignored.
            first_row: The number of the first row in the whole table, from which error messages count.

        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> model = NCPRegressor(members=1, epochs=1, random_state=0).fit(pa.table({"x": X[:, 0]}), X[:, 0])
        >>> model.predict_piece(pa.table({"id": ["a", "b"], "x": [0.1, 0.2]}), first_row=1001).mean.shape
        (2,)
        """
        self._check_fitted()
        return Distribution.of(self.fitted_, table, first_row)

    def information_gain(self, X: TableLike) -> np.ndarray:  # noqa: N803
        """The expected information gain of a label for each row ``[rows]``, in nats per output."""
        return self.predict_distribution(X).score("information_gain")

    def suggest(
        self,
        X_pool: TableLike,  # noqa: N803
        n: int = 10,
        *,
        acquisition: str | Score = DEFAULT_RULE,
        temperature: float = 0.0,
        labelled: TableLike | None = None,
        exclude: ArrayLike | None = None,
        cost: ArrayLike | None = None,
        per: tuple[ArrayLike, int] | None = None,
        output_weights: ArrayLike | None = None,
        random_state: RandomState = None,
    ) -> np.ndarray:
        """Choose the ``n`` rows of a pool that are most worth a label.

        A rule compares 50,000 candidates at most. In a larger pool half of them are drawn uniformly and the others by
        their distance from the labelled rows and their uncertainty (see `ncprior.tables.candidates`).

        Args:
            X_pool: Rows without labels.
            n: How many to pick.
            acquisition: A rule for batches that are informative together (``kmeans_inputs``, ``kmeans_greedy``,
                ``kmeans_pp``, ``lcmd``, ``k_center``, ``max_det``, ``bait``), or a score of rows one by one
                (``information_gain``, ``uncertainty``, ``predictive_variance``, ``predictive_std``, ``random``): names
                in `ncprior.tables.batches.RULES` and `ncprior.core.acquisition.SCORES`. A function is a score: it gets
                the prediction of the standardised target, a `Predictive`, and returns one number for each row; more is
                better.
            temperature: Temperature of the softmax of scores from which rows are drawn; 0 picks the highest scores. It
                has no meaning for rules.
            labelled: Rows with labels, which the first five rules keep away from. By default the training rows, or
                1,000 of them.
            exclude: True for rows of the pool that must not be picked ``[rows]``.
            cost: What the label of each row costs, in any unit ``[rows]``: rows are chosen by what they gain for each
                unit of cost. Where rows are drawn at random, one that costs twice as much is drawn half as often.
            per: The group of each row ``[rows]`` and a number: at most so many rows of each group are picked.
            output_weights: How much each of several outputs counts ``[outputs]``. Scores, covariances and gradients are
                averaged with these weights.
            random_state: Seed of the draw.

        Returns:
            The indices of the rows in the pool, best first.

        Raises:
            UserError: If arguments have no meaning, or the method does not have what the rule needs.
        """
        table = self._table(X_pool)
        request = Request(
            count=n,
            acquisition=acquisition,
            temperature=temperature,
            excluded=excluded_rows(table.num_rows, exclude),
            constraints=Constraints.of(table.num_rows, cost, per),
            output_weights=output_weights_for(acquisition, output_weights, self.fitted_.spec.outputs),
            seed=int(check_random_state(random_state).randint(2**31 - 1)),
        )
        rows = None if labelled is None else self.fitted_.encoder.transform(self._table(labelled))
        return choose(self.fitted_, table, request, labelled=rows)

    def sample_functions(self, X: TableLike, n: int = 20, *, random_state: RandomState = None) -> np.ndarray:  # noqa: N803
        """Draw functions from the belief over the mean, evaluated at these rows.

        Args:
            X: Rows with the columns of training.
            n: Number of functions.
            random_state: Seed of the draw.

        Returns:
            Values ``[n, rows]``, or ``[n, rows, outputs]`` if y had two axes, in the unit of the target. Their standard
            deviation over the functions is the uncertainty.
        """
        key = jax.random.key(check_random_state(random_state).randint(2**31 - 1))
        table = self._table(X)
        functions = sample_functions(self.fitted_, table, n, key)
        return functions[..., 0] if self.fitted_.flat else functions

    def save(self, path: str | Path) -> None:
        """Save the model to a file of JSON and weights, from which no code runs when it is loaded.

        Args:
            path: The file, such as ``model.ncp``.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        feature_names = None if names is None else [str(name) for name in names]
        model = saving.SavedModel(self.fitted_, self.get_params(deep=False), feature_names, self.n_features_in_)
        saving.save(Path(path), model, self._options_of)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        method: Method | None = None,
        trunk: TrunkFactory | None = None,
        input_prior: InputPrior | None = None,
    ) -> "NCPRegressor":
        """Load a model from a file.

        Args:
            path: A file of `save` or ``ncprior fit``.
            method: Your own method, if the model was trained with one: the file does not contain code.
            trunk: Likewise your own trunk.
            input_prior: Likewise your own input prior.

        Raises:
            UserError: If the file is not a model or is damaged, or a part of your own is missing.
        """
        own_parts = {"method": method, "trunk": trunk, "input_prior": input_prior}
        saved = saving.load(Path(path), own_parts, cls._get_param_names(), cls._options_of)
        model = cls(**saved.parameters)
        model.fitted_ = saved.fitted
        model.n_features_in_ = saved.features
        if saved.feature_names is not None:
            model.feature_names_in_ = np.array(saved.feature_names, dtype=object)
        return model

    @classmethod
    def _options_of(cls, parameters: Arguments) -> FitOptions:
        """The options of an estimator with these parameters, some of which may have no effect."""
        return FitOptions.of(cls(**parameters), check_effects=False)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.target_tags.multi_output = True
        tags.non_deterministic = self.random_state is None
        return tags

    def _learn(
        self,
        X: TableLike,  # noqa: N803
        y: TargetsLike,
        sample_weight: ArrayLike | None = None,
        *,
        unlabelled: TableLike | None = None,
        resume: bool = False,
        epochs: int | None = None,
        check: bool = True,
    ) -> "NCPRegressor":
        """Train new networks, or with ``resume`` the present ones; ``check`` looks for mistakes in a whole table."""
        started = time.monotonic()
        options = FitOptions.of(self)
        table = self._table(X, reset=not resume)
        if check and not resume:
            check_inputs(table)
        targets, names = targets_of(y)
        if len(targets) != table.num_rows:
            raise UserError(f"X has {table.num_rows} rows and y has {len(targets)}; give one target for each row")
        flat = targets.ndim == 1
        labelled = LabelledTable(table, targets.reshape(len(targets), -1), None, flat=flat, target_names=names)
        if sample_weight is not None:
            labelled = weighted(labelled, _check_sample_weight(sample_weight, np.zeros(table.num_rows)))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if unlabelled is not None:
            if why := options.why_no_unlabelled:
                raise UserError(f"unlabelled rows (X_unlabelled) have no effect with {why}; leave them out")
            labelled = labelled._replace(unlabelled=draw([unlabelled_rows(unlabelled, table)], seed))
        if resume and flat != self.fitted_.flat:
            raise UserError("y has another number of axes or outputs than before; give it in the same shape")
        with progress_bar(self.verbose, self.callbacks) as report:
            if resume:
                fitted = continue_fit(self.fitted_, labelled, options, seed=seed, epochs=epochs, report=report)
            else:
                fitted = fit(labelled, options, seed=seed, epochs=epochs, report=report)
        self.fitted_: Fitted = fitted._replace(seconds=time.monotonic() - started)
        return self

    def _table(self, X: TableLike, *, reset: bool = False) -> pa.Table:  # noqa: N803
        """The rows as a table, with the checks that scikit-learn users expect.

        Columns that have names are taken by them: their order does not matter, and others beside them are ignored.
        """
        check_process()
        if not reset:
            self._check_fitted()
        if isinstance(X, list) and any(isinstance(value, str) for row in X if isinstance(row, list) for value in row):
            X = np.array(X, dtype=object)  # noqa: N806  # numbers beside text stay numbers
        named = is_frame(X)
        if not named:
            # allow-nan lets missing values pass and stops infinities.
            X = check_array(X, dtype=None, ensure_all_finite="allow-nan", estimator=self)  # noqa: N806
        table = as_table(X)  # once: a stream can be read only once
        if named and not reset and hasattr(self, "feature_names_in_"):
            return table  # the encoder finds columns by name, and refuses a table that lacks one
        validate_data(self, X if not named or hasattr(X, "iloc") else table, skip_check_array=True, reset=reset)
        if not reset and named != hasattr(self, "feature_names_in_"):
            # If only one of the tables has names, columns are taken in their order; scikit-learn has warned of it.
            table = table.rename_columns([column.name for column in self.encoder_.columns])
        return table

    def _check_fitted(self) -> None:
        if not hasattr(self, "fitted_"):
            check_is_fitted(self)  # whose message scikit-learn users know; it takes long

    @property
    def encoder_(self) -> Encoder:
        """The encoding of columns as numbers."""
        return self.fitted_.encoder

    @property
    def calibration_(self) -> Calibration:
        """Scales of noise and uncertainty, and shares of the members."""
        return self.fitted_.calibration

    @property
    def steps_(self) -> tuple[int, ...]:
        """Training steps of each member."""
        return self.fitted_.steps

    @property
    def validation_(self) -> Validation | None:
        """Scores on held-out rows; None if none were held out, or training went on since."""
        return self.fitted_.validation

    @property
    def n_rows_(self) -> int:
        """Number of training rows."""
        return self.fitted_.rows

    @property
    def target_names_(self) -> list[str] | None:
        """Names of the outputs, if y had any."""
        return self.fitted_.target_names

    @target_names_.setter
    def target_names_(self, names: list[str] | None) -> None:
        self.fitted_ = self.fitted_._replace(target_names=names)

    @property
    def target_shift_(self) -> np.ndarray:
        """Mean of every output in training."""
        return self.fitted_.target_shift

    @property
    def target_scale_(self) -> np.ndarray:
        """Standard deviation of every output in training."""
        return self.fitted_.target_scale

    @property
    def fit_seconds_(self) -> float:
        """Seconds of the last training."""
        return self.fitted_.seconds
