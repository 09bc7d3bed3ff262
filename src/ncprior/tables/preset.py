"""The settings of an estimator."""

from ncprior.core.settings import Settings

TABLES = Settings(
    hidden=(128, 128),
    learning_rate=3e-3,
    batch_size=64,
    activation="gelu",
    leaky_slope=0.2,
    noise_floor=0.01,
    ncp_weight_kl=1.0,
    input_noise="radial",
    input_noise_std=2.0,
    gamma=10.0,
    gamma_per_label=True,
    ncp_away=True,
    noise_tie=10.0,
    clip=10.0,
    remainder="filled",
)
"""Settings for people's own tables without tuning: a prior that fades as labels come in, and noise of many sizes."""

CONTRAST = Settings(
    hidden=(64, 64),
    learning_rate=3e-3,
    batch_size=128,
    leaky_slope=0.2,
    input_noise="radial",
    input_noise_std=2.0,
    gamma=1.0,
    clip=10.0,
    remainder="filled",
)
"""Settings of the contrast networks, see `ncprior.tables.contrast`."""
