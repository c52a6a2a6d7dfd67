"""The site: `make docs` builds it strictly (a warning is an error)."""

project = "turnout"
author = "The turnout developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "turnout"
exclude_patterns = ["_build"]
autodoc_typehints = "none"  # shapes and meanings are in the text
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_use_ivar = True
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
nitpick_ignore_regex = [("py:.*", ".*")]  # attributes in docstrings are words, not references
