"""The oldest versions that pyproject.toml allows, as constraints for pip: `python tests/lowest.py pyproject.toml`."""

import itertools
import re
import sys
import tomllib
from pathlib import Path


def lowest(dependencies: list[str]) -> list[str]:
    """The oldest version of every dependency.

    >>> lowest(["jax>=0.10.2,<0.11", "numpy>=2.4,<3"])
    ['jax==0.10.2', 'numpy==2.4']
    """
    bounds = (re.match(r"([\w.-]+)>=([\d.]+)", dependency) for dependency in dependencies)
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound]


if __name__ == "__main__":
    project = tomllib.loads(Path(sys.argv[1]).read_text())["project"]
    extras = project.get("optional-dependencies", {}).values()
    print("\n".join(lowest([*project["dependencies"], *itertools.chain(*extras)])))
