import importlib
import xml.etree.ElementTree as ET

import pytest

from sparkrelay.errors import ConfigException
from sparkrelay.simulate.picture import PANELS, check_picture, draw_html, draw_svg, write_picture

SVG = "{http://www.w3.org/2000/svg}"


def row(churn, assignor, value):
    figures = {panel.column: None if value is None else value * panel.scale for panel in PANELS}
    return {"churn": churn, "assignor": assignor, "runs": 3, "failed": 0, "unconverged": 0, **figures}


SUMMARY = [
    row("calm", "First & best", 0.0),
    row("calm", "Second", 2.0),
    row("all", "First & best", 4.0),
    row("all", "Second", None),
]


def test_a_bar_is_as_long_as_its_value():
    root = ET.fromstring(draw_svg(SUMMARY, title="<A title>"))
    bars = {}
    for rect in root.iter(f"{SVG}rect"):
        if (tip := rect.find(f"{SVG}title")) is not None:
            bars.setdefault(tip.text, float(rect.get("width")))
    assert bars["all, First & best: 4"] == pytest.approx(2 * bars["calm, Second: 2"])
    assert bars["calm, First & best: 0"] == bars["all, Second: failed"] == 0.5


def test_every_panel_and_every_name_is_drawn():
    texts = [text.text for text in ET.fromstring(draw_svg(SUMMARY, title="<A title>")).iter(f"{SVG}text")]
    for wanted in ("<A title>", "First & best", "Second", "calm", "all", *(panel.title for panel in PANELS)):
        assert wanted in texts


def test_the_page_holds_picture_and_figures():
    page = draw_html(SUMMARY, title="<A title>")
    assert "<svg" in page
    assert "&lt;A title&gt;" in page
    assert "<th>First &amp; best</th><td>3</td>" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")  # it needs nothing from elsewhere


def test_all_zero_is_no_division_by_zero():
    assert "NaN" not in draw_svg([row("calm", "Only", 0.0)], title="x")


@pytest.mark.parametrize("name", ["out.svg", "out.html", "out.SVG"])
def test_the_suffix_decides(name, tmp_path):
    write_picture(tmp_path / name, SUMMARY, title="x")
    assert "<svg" in (tmp_path / name).read_text()


def test_unknown_suffixes_and_folders_are_refused(tmp_path):
    with pytest.raises(ConfigException, match=r"\.svg, \.html, \.png"):
        check_picture(tmp_path / "out.gif")
    with pytest.raises(ConfigException, match="does not exist"):
        check_picture(tmp_path / "nowhere" / "out.svg")


def test_png_without_matplotlib_names_the_remedy(monkeypatch, tmp_path):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ConfigException, match=r"\.svg or \.html file, or pip install matplotlib"):
        check_picture(tmp_path / "out.png")
