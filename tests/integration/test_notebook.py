"""docs/notebook.ipynb: its cells run in one kernel, one after the other, as a reader would run them.

A real kernel: there an event loop runs on the main thread, and what a cell prints or returns is taken from it.
"""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

FILE = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


def test_no_cell_was_run_where_it_was_written():
    """Outputs would show somebody's machine, and change each time."""
    cells = json.loads(FILE.read_text())["cells"]
    assert any(cell["cell_type"] == "code" for cell in cells)
    for cell in cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.long
def test_the_cells_start_look_stop_change_and_start_again(tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
        (tmp_path / name).mkdir()
    notebook = nbformat.read(FILE, as_version=4)
    nbformat.validate(notebook)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [_text(cell) for cell in notebook.cells if cell.cell_type == "code"]
    tables = [words for text in outputs if (words := text.split())[:2] == ["customer", "total"]]
    assert tables == [
        ["customer", "total", "0", "ada", "43.0", "1", "bo", "5.0"],
        ["customer", "total", "0", "ada", "43.0", "1", "bo", "25.0"],
    ], outputs
    assert any("RUNNING" in text and "Row(customer='ada', total=43.0)" in text for text in outputs), outputs
    assert not any("Traceback" in text for text in outputs), outputs


def _text(cell):
    """What a cell printed and returned."""
    return "".join(
        output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in cell.get("outputs", ())
    )
