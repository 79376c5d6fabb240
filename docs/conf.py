"""Configuration of the documentation site; `make docs` builds it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

import jaxtyping  # noqa: F401 - first, so that signatures show the shapes of tensors

from structattn import __version__

project = "structattn"
author = "The structattn developers"
copyright = author  # noqa: A001 (Sphinx's name)
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "accessibility",
    "docstrings",
    "explorer_pages",
    "mathml",
    "repository_links",
]
exclude_patterns = ["extensions"]

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "show-inheritance": False}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
add_module_names = False
default_role = "literal"
napoleon_numpy_docstring = False

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "structattn"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = None
pygments_style, pygments_dark_style = "default", "github-dark"
