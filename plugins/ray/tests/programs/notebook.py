"""A notebook is executed, and its cells show the same kinds of outputs as they have in the file. argv: its path."""

import sys

import nbformat
from nbclient import NotebookClient


def shown(notebook):
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [{each.output_type for each in cell.outputs if each.get("name") != "stderr"} for cell in cells]


notebook = nbformat.read(sys.argv[1], 4)
before = shown(notebook)
NotebookClient(notebook, timeout=200).execute()
assert shown(notebook) == before, (shown(notebook), before)
(accuracy,) = [
    float(output["data"]["text/plain"])
    for cell in notebook.cells
    if cell.source.endswith('results[0]["accuracy"]')
    for output in cell.outputs
]
assert accuracy > 0.9, accuracy
