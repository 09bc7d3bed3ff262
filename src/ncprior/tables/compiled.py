"""Programs that are compiled once, for this process and for later ones.

`Program` stands in for `jax.jit`. What XLA compiled is kept in a file (`program_files`), and found again by the name of
the program and all that it depends on, without tracing the function: half of the time of a small fit would go into
tracing and compiling. JAX's own cache of programs would still trace, and is a setting that belongs to the user.
"""

import functools
import hashlib
import os
import pickle
import platform
import re
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np
from jax import monitoring
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from jaxtyping import PyTree

from ncprior.tables.program_files import program_folder, read_program, remove_program, write_program

_LIBRARIES = ("jax", "jaxlib", "equinox", "optax", "numpy")
"""Libraries whose versions programs depend on."""

_SETTINGS = (
    "jax_default_dtype_bits",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_enable_x64",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_threefry_partitionable",
)
"""The user's settings of JAX that programs depend on."""

_NOT_OURS = ("jax_debug_infs", "jax_debug_nans", "jax_default_device", "jax_disable_jit")
"""Settings with which programs are left to `jax.jit`."""


_COMPILED_FAST: dict[str, str | bool] = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": "1"}
"""XLA's options for brief programs. Of the time to compile one that begins a member, a third is left, and a little more
than half of one that predicts; a training step would take half as long again."""


class Program:
    """A function that is compiled once for every shape of its arguments.

    Args:
        function: A function of trees of arrays, and of static values by keyword.
        about: All that the function depends on besides its arguments and the source of this package: programs with
            equal texts are the same. None if no text can say that, as with functions of the user's own: such programs
            are traced in each process, and found by what they compute.
        donate: Arguments whose memory may be used for the results.
        static: Names of arguments that are not arrays, given by keyword.
        brief: Whether it runs for milliseconds at most, so that compiling it fast matters more than what is compiled.

    >>> import numpy as np
    >>> double = Program(lambda x: 2 * x, "double")
    >>> double(np.arange(3)).tolist()
    [0, 2, 4]
    """

    def __init__(
        self,
        function: Callable[..., PyTree],
        about: str | None,
        *,
        donate: Sequence[int] = (),
        static: Sequence[str] = (),
        brief: bool = False,
    ) -> None:
        self._brief = brief
        self._jit = jax.jit(function, donate_argnums=tuple(donate), static_argnames=tuple(static))
        self._about = about
        self._compiled: dict[Hashable, Callable[..., PyTree]] = {}
        self._lock = threading.Lock()

    def __call__(self, *args: PyTree, **static: object) -> PyTree:
        """The function's result."""
        if not _is_ours(jax.tree.leaves(args)):
            return self._jit(*args, **static)
        return self._compiled_for(args, static)(*args)

    def bind(self, first: PyTree) -> Callable[[np.ndarray], PyTree]:
        """The function of its second argument, an array, with the first one given, which is looked at only once."""
        found: dict[Hashable, Callable[..., PyTree]] = {}

        def call(array: np.ndarray) -> PyTree:
            if not _is_ours([array]):
                return self._jit(first, array)
            signature = (array.shape, array.dtype, _settings())
            if signature not in found:
                found[signature] = self._compiled_for((first, array), {})
            return found[signature](first, array)

        return call

    def _compiled_for(self, args: tuple[PyTree, ...], static: dict[str, object]) -> Callable[..., PyTree]:
        """The compiled program for arguments of these shapes."""
        leaves, tree = jax.tree.flatten(args)
        signature = (tree, tuple(_shape(leaf) for leaf in leaves), tuple(static.items()), _settings())
        program = self._compiled.get(signature)
        if program is None:
            with self._lock:  # other threads wait for it
                program = self._compiled.get(signature)
                if program is None:
                    program = self._compiled[signature] = self._make(args, static)
        return program

    def _make(self, args: tuple[PyTree, ...], static: dict[str, object]) -> Callable[..., PyTree]:
        """Makes that program: from its file if there is one."""
        folder, machine = program_folder(), _machine()
        if folder is None or machine is None:
            return self._compile(self._jit.lower(*args, **static))
        lowered = self._jit.lower(*args, **static) if self._about is None else None
        leaves, tree = jax.tree.flatten(args)
        what = (self._about, static, str(tree), [_shape(leaf) for leaf in leaves], _settings())
        text = re.sub(r" at 0x[0-9a-f]+", "", repr(what)) if lowered is None else lowered.as_text()
        parts = (machine, _sources() if lowered is None else "", "brief" if self._brief else "", text)
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        if (kept := read_program(folder, key)) is not None:
            try:
                executable, example = pickle.loads(kept)  # a file that only this user can have written
                given = jax.tree.structure((args, {}))
                # Programs of the user's own that compute the same may still differ in what is static in their results.
                results = jax.tree.structure(example) if lowered is None else lowered.out_tree
                return deserialize_and_load(executable, given, results, execution_devices=jax.local_devices()[:1])
            except Exception:  # whatever is wrong with it, it can be compiled
                remove_program(folder, key)
        with _Compilation() as compilation:
            lowered = self._jit.lower(*args, **static) if lowered is None else lowered
            program = self._compile(lowered)
        if not compilation.was_loaded:
            _keep(folder, key, program)
        return program

    def _compile(self, lowered: jax.stages.Lowered) -> jax.stages.Compiled:
        if self._brief:
            with suppress(jax.errors.JaxRuntimeError):  # of another version of XLA, which has no such options
                return lowered.compile(compiler_options=_COMPILED_FAST)
        return lowered.compile()


class _Compilation:
    """Whether JAX took a program from its own cache, if the user has one: XLA cannot serialise such programs again."""

    _current = threading.local()

    def __enter__(self) -> "_Compilation":
        _listen()
        self.was_loaded = False
        self._current.value = self
        return self

    def __exit__(self, *_: object) -> None:
        self._current.value = None

    @classmethod
    def heard(cls, event: str, **_: object) -> None:
        """Called by JAX for every event, in the thread that compiles."""
        current = getattr(cls._current, "value", None)
        if current is not None and event == "/jax/compilation_cache/cache_hits":
            current.was_loaded = True


@functools.cache
def _listen() -> None:
    monitoring.register_event_listener(_Compilation.heard)


def _keep(folder: Path, key: str, program: jax.stages.Compiled) -> None:
    """Writes a program to its file, if it can be."""
    try:
        executable, _, results = serialize(program)
        # An example of the results, as the structure itself would not be equal to that of other results.
        example = jax.tree.unflatten(results, range(results.num_leaves))
        whole = pickle.dumps((executable, example))
        if jax.tree.structure(pickle.loads(whole)[1]) != results:
            return  # a tree with functions that are only equal to themselves
    except Exception:  # XLA cannot serialise all programs, nor Python all functions in a tree
        return
    write_program(folder, key, whole)


def _is_ours(leaves: Sequence[object]) -> bool:
    """Whether a compiled program can be called with these: not with some settings, nor inside of a traced function."""
    if any(getattr(jax.config, name, None) for name in _NOT_OURS) or jax.default_backend() != "cpu":
        return False
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


def _shape(leaf: object) -> tuple[object, ...]:
    """What a program has to know of an argument."""
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)
    return (type(leaf),)


def _settings() -> tuple[object, ...]:
    return tuple(getattr(jax.config, name, None) for name in _SETTINGS)


@functools.cache
def _machine() -> str | None:
    """Versions and hardware that compiled programs depend on; None if they cannot be kept."""
    if jax.process_count() > 1:
        return None
    libraries = [f"{name} {version(name)}" for name in _LIBRARIES]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    flags = [os.environ.get(name, "") for name in ("XLA_FLAGS", "JAX_PLATFORMS")]
    hardware = [platform.system(), platform.machine(), _processor(), str(cores), str(len(jax.devices()))]
    return "\n".join([platform.python_version(), *libraries, *hardware, *flags])


def _processor() -> str:
    """The processor's name and features: XLA uses all that it has."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(dict.fromkeys(line for line in lines if re.match(r"(model name|flags|Features|CPU part)\b", line)))


@functools.cache
def _sources() -> str:
    """A digest of this package's source files, which say what the programs compute."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(path for room in ("core", "data", "tables") for path in (package / room).rglob("*.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
