"""The first code cell of every notebook: on Colab it installs labkit, elsewhere it does nothing."""

from labkit.project import BRANCH, REPOSITORY

COLAB_CELL = f"""\
import sys

if "google.colab" in sys.modules:  # Colab has torch already; labkit is added to it
    get_ipython().run_line_magic("pip", "install --quiet 'labkit[lab] @ git+{REPOSITORY}@{BRANCH}'")"""
