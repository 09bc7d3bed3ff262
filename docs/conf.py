"""How the documentation is built: `make docs`."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import ncprior

project = "ncprior"
author = "The ncprior developers"
release = version = ncprior.__version__
html_title = f"ncprior {release}"
html_show_copyright = False
smartquotes = False  # which would make one dash of the two before an option

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "generated_pages",
    "mathml",
]
exclude_patterns = ["_build", "_ext"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["ncprior.css"]
html_math_renderer = "mathml"

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3

# Tutorials run at every build, in a folder that is gone afterwards, with the `ncprior` of this environment.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 1200  # seconds of a cell, on a machine that is busy with other work
nb_execution_raise_on_error = True
nb_merge_streams = True
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ["MATPLOTLIBRC"] = str(HERE / "matplotlibrc")
os.environ |= {"COLUMNS": "90", "TTY_COMPATIBLE": "0"}  # commands print plain text, as into a file

autodoc_member_order = "bysource"
# scikit-learn adds the methods that are left out, and their text refers to pages of its own.
autodoc_default_options = {
    "no-value": True,
    "exclude-members": "set_fit_request, set_partial_fit_request, set_predict_request, set_score_request",
}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 90
default_role = "py:obj"  # names in single backquotes become links where they can
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # fields that are described in the class and at themselves are no duplicates
napoleon_attr_annotations = False  # shapes such as "*inputs" are no reStructuredText

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
