"""Sphinx configuration: ``python -m sphinx -W docs docs/_build``. Needs no network."""

import elman

project = "elman"
author = "the elman developers"
copyright = "the elman developers, BSD-3-Clause"
version = release = elman.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.mathjax", "numpydoc", "myst_parser"]
exclude_patterns = ["_build"]
root_doc = "index"

myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3
# a bare $ opens a formula only where it does not touch a space: prices and shell prompts stay text
myst_dmath_allow_space = False

# numpydoc writes the types, with shapes; those of the signatures would repeat them without
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False

html_theme = "furo"
html_title = f"elman {release}"
html_copy_source = False
