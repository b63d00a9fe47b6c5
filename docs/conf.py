"""Sphinx configuration: every page is executed at every build, and an error in a cell fails it."""

import os

import mxnum

# Small products on few cores, beside other work: threads of BLAS would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

project = "mxnum"
author = "the mxnum authors"
release = version = mxnum.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "mxnum"
exclude_patterns = ["_build", "results"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
autodoc_typehints = "none"
autodoc_member_order = "bysource"
