"""Loss terms beyond the paper, used for people's tables.

They share `View` and `Term` with the paper's terms in `ncprior.core.objectives`. Settings switch each of them on alone.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from ncprior.core.distributions import Normal
from ncprior.core.objectives import Term, View


class NoiseTie(eqx.Module):
    """``KL(N(m, noise(x)^2) || N(m, noise(x~)^2))``: the noise at x~ stays what it is at the clean row.

    Not in the paper. It keeps the noise from taking the place of uncertainty off the data; the clean row's noise is
    taken as a constant, so that it is learned from the data alone.
    """

    def __call__(self, view: View) -> Float[Array, "rows"]:
        """One loss for each row."""
        clean = jax.lax.stop_gradient(view.of_noised(view.clean["noise"]))
        return Normal(0.0, clean).kl(Normal(0.0, view.noised["noise"])).sum(-1)


class AwayFromData(eqx.Module):
    """A term that counts only where x~ is away from the rows of the mini batch.

    In few dimensions noise often lands among the data, where the prior would only blur what was learned. A noised row
    counts ``1 - exp(-d^2 / 2)`` with ``d`` its distance to the nearest row, in units of the median distance from a row
    to its own nearest one. Not in the paper.
    """

    term: Term

    def __call__(self, view: View) -> Float[Array, "rows"]:
        """One loss for each row."""
        assert view.noised_inputs is not None
        inputs, in_use = view.batch.inputs, view.batch.weights > 0

        origin = inputs.mean(0)  # where products are rounded least
        inputs = inputs - origin

        def nearest(rows: Float[Array, "some inputs"], others: Bool[Array, "some rows"]) -> Float[Array, "some"]:
            # |a|^2 + |b|^2 - 2 a . b is far faster than differences; what rounding can have made is no distance.
            sizes = jnp.sum(rows**2, axis=-1)[:, None] + jnp.sum(inputs**2, axis=-1)
            squares = sizes - 2 * jnp.matmul(rows, inputs.T, precision="highest")
            squares = jnp.where(squares > 8 * jnp.finfo(rows.dtype).eps * sizes, squares, 0.0)
            return jnp.min(jnp.where(others, squares, jnp.inf), axis=1)

        others = in_use[None] & ~jnp.eye(len(inputs), dtype=bool)
        own = nearest(inputs, others)
        spacing = jnp.nanmedian(jnp.where(in_use & jnp.isfinite(own), own, jnp.nan))
        far = nearest(view.noised_inputs - origin, in_use[None])
        count = 1 - jnp.exp(-0.5 * far / (jnp.nan_to_num(spacing) + 1e-6))
        return self.term(view) * jax.lax.stop_gradient(count)


class FadesWithLabels(eqx.Module):
    """A term divided by the number of visible labels: a prior, which counts less as data grows."""

    term: Term

    def __call__(self, view: View) -> Float[Array, "rows"]:
        """One loss for each row."""
        return self.term(view) / view.batch.num_visible
