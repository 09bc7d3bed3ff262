"""Neural regression that knows what it does not know, and says what to label next."""

__version__ = "0.1.0"
__all__ = ["NCPRegressor"]

TYPE_CHECKING = False  # without `typing`: while modules are imported, the command cannot handle Ctrl-C
if TYPE_CHECKING:
    from ncprior.tables.estimator import NCPRegressor


def __getattr__(name: str) -> object:
    """`NCPRegressor`, imported only when it is asked for: it takes a while, and many commands do not need it."""
    if name == "NCPRegressor":
        from ncprior.tables.estimator import NCPRegressor

        return NCPRegressor
    raise AttributeError(f"module 'ncprior' has no attribute {name!r}")
