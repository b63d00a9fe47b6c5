"""Sphinx configuration: every build executes every page, and an error in a cell fails the build."""

import os
import sys
from pathlib import Path

import mxnum

sys.path.insert(0, str(Path(__file__).parent))

# BLAS uses one thread, because on a machine with few cores, several threads would wait for each
# other and for other programs.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

project = "mxnum"
author = "the mxnum authors"
release = version = mxnum.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml", "ledger_links", "explorer_page"]
html_math_renderer = "mathml"
html_theme = "furo"
html_title = "mxnum"
html_static_path = ["_static"]
html_css_files = ["style.css"]
exclude_patterns = ["_build", "lab/results"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True  # a program prints its output in pieces
nb_render_markdown_format = "myst"  # cells display tables as Markdown
autodoc_typehints = "none"
autodoc_member_order = "bysource"
