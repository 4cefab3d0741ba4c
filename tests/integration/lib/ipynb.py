# SPDX-License-Identifier: MIT
"""Files of Jupyter Notebook."""
import json


def notebook(*sources):
    """A notebook with a cell of Python for each source: its text."""
    cells = [{"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}
             for source in sources]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    return json.dumps({"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4,
                       "nbformat_minor": 4})
