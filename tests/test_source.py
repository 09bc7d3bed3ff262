"""Rules that the source keeps, which no linter checks."""

import ast
from pathlib import Path

import pytest

import ncprior

SOURCE = Path(ncprior.__file__).parent
MOST_POSITIONAL = 5


def modules(*rooms):
    return [path for room in rooms for path in sorted((SOURCE / room).rglob("*.py"))]


def name(path):
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("path", modules("."), ids=name)
def test_functions_have_few_positional_parameters(path):
    functions = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))
    for function in functions:
        given = [one.arg for one in function.args.posonlyargs + function.args.args if one.arg not in ("self", "cls")]
        assert len(given) <= MOST_POSITIONAL, f"{function.name}: {', '.join(given)}"


@pytest.mark.parametrize("path", modules("core", "data"), ids=name)
def test_the_core_has_real_types(path):
    assert not [node.lineno for node in ast.walk(ast.parse(path.read_text())) if getattr(node, "id", "") == "Any"]


@pytest.mark.parametrize("path", modules("."), ids=name)
def test_private_names_stay_in_their_module(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ncprior"):
            private = [one.name for one in node.names if one.name.startswith("_") and not one.name.endswith("__")]
            assert not private, f"{node.module}: {', '.join(private)}"


OF_LIBRARIES = {"_replace", "_asdict", "_fields", "_exit"}  # of named tuples, and of os


@pytest.mark.parametrize("path", modules("."), ids=name)
def test_private_attributes_are_those_of_their_module(path):
    nodes = list(ast.walk(ast.parse(path.read_text())))
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    defined |= {getattr(node, "attr", "") or getattr(node, "id", "") for node in nodes if is_stored(node)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
            inherited = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            assert inherited or node.attr in OF_LIBRARIES | defined, f"{ast.unparse(node)} in line {node.lineno}"


def is_stored(node):
    return isinstance(getattr(node, "ctx", None), ast.Store)
