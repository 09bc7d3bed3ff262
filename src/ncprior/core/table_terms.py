"""Loss terms beyond the paper, used for people's tables.

They have the form of the paper's terms in `ncprior.core.objectives`. A setting switches each of them on.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from ncprior.core.distributions import Normal
from ncprior.core.objectives import Term, View


class NoiseTie(eqx.Module):
    """``KL(N(m, noise(x)^2) || N(m, noise(x~)^2))``: keeps the noise at x~ equal to that at x.

    Without it, noise can replace uncertainty away from the data. No gradient flows to the noise at x, which is learned
    from the data alone.
    """

    def __call__(self, view: View) -> Float[Array, "rows"]:
        """One loss for each row."""
        clean = jax.lax.stop_gradient(view.of_noised(view.clean["noise"]))
        return Normal(0.0, clean).kl(Normal(0.0, view.noised["noise"])).sum(-1)


class AwayFromData(eqx.Module):
    """A term weighted by how far x~ is from the rows of the mini batch.

    In few dimensions noised inputs are often close to data, where the prior would only blur the fit. The weight is
    ``1 - exp(-d^2 / 2)``, with ``d`` the distance to the nearest row in units of the median nearest-neighbour distance
    of the rows.
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
        spacings = nearest(inputs, others)
        spacing = jnp.nanmedian(jnp.where(in_use & jnp.isfinite(spacings), spacings, jnp.nan))
        far = nearest(view.noised_inputs - origin, in_use[None])
        count = 1 - jnp.exp(-0.5 * far / (jnp.nan_to_num(spacing) + 1e-6))
        return self.term(view) * jax.lax.stop_gradient(count)


class FadesWithLabels(eqx.Module):
    """A term divided by the number of visible labels, as for a prior."""

    term: Term

    def __call__(self, view: View) -> Float[Array, "rows"]:
        """One loss for each row."""
        return self.term(view) / view.batch.num_visible
