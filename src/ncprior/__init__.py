"""Neural regression that knows what it does not know, and says what to label next.

The public names are imported when they are first used, so that ``import ncprior`` stays fast and loads no JAX.
"""

__version__ = "0.1.0"
__all__ = [
    "Method",
    "NCPRegressor",
    "Prediction",
    "Settings",
    "UserError",
    "__version__",
    "load",
    "methods",
    "presets",
]

TYPE_CHECKING = False  # without `typing`: while modules are imported, the command cannot handle Ctrl-C
if TYPE_CHECKING:
    from ncprior.core.methods import Method, methods
    from ncprior.core.prediction import Prediction
    from ncprior.core.settings import PRESETS, Settings
    from ncprior.errors import UserError
    from ncprior.tables.estimator import NCPRegressor

    load = NCPRegressor.load
    presets = PRESETS

_PLACES = {
    "Method": ("ncprior.core.methods", "Method"),
    "NCPRegressor": ("ncprior.tables.estimator", "NCPRegressor"),
    "Prediction": ("ncprior.core.prediction", "Prediction"),
    "Settings": ("ncprior.core.settings", "Settings"),
    "UserError": ("ncprior.errors", "UserError"),
    "load": ("ncprior.tables.estimator", "NCPRegressor.load"),
    "methods": ("ncprior.core.methods", "methods"),
    "presets": ("ncprior.core.settings", "PRESETS"),
}
"""The module and the attribute behind each public name."""


def __getattr__(name: str) -> object:
    """A public name, imported now."""
    if name not in _PLACES:
        raise AttributeError(f"module 'ncprior' has no attribute {name!r}")
    from importlib import import_module
    from operator import attrgetter

    module, attribute = _PLACES[name]
    return attrgetter(attribute)(import_module(module))


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(__all__)
