"""The site of docs/ is built without a warning and without a network, and everything in it leads somewhere."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))
NOWHERE = "http://127.0.0.1:9"


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loaded = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs.get("id"), attrs.get("name") if tag == "a" else None} - {None}
        if tag == "a" and "href" in attrs:
            self.links.add(attrs["href"])
        elif tag == "link" and attrs.get("rel") in {"stylesheet", "icon", "preconnect", "preload"}:
            self.loaded.add(attrs["href"])
        elif attrs.get("src"):
            self.loaded.add(attrs["src"])


pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    for name in ("mkdocs.yml", "README.md"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    (folder / "src").symlink_to(ROOT / "src")
    proxies = {f"{kind}_proxy": NOWHERE for kind in ("http", "https", "HTTP", "HTTPS")}
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict"],
        cwd=folder,
        env={**os.environ, **proxies, "NO_COLOR": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )
    assert built.returncode == 0, f"{built.stdout}\n{built.stderr}"
    assert "No issues found" in built.stdout + built.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def in_nav():
    # A line "- page.md" or "- Title: page.md".
    return re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)


def test_every_page_is_in_the_navigation_once():
    assert sorted(in_nav()) == sorted(path.as_posix() for path in PAGES)


def test_pages_that_the_code_names_are_there():
    named = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text("utf-8"))
    }
    assert named
    assert not [name for name in named if not (ROOT / name).is_file()]


def test_llms_txt_lists_every_page(site):
    lines = re.findall(r"^- \[[^]]+\]\((\S+)\): .+$", (site / "llms.txt").read_text(), re.MULTILINE)
    assert sorted(lines) == sorted(path.with_suffix(".html").as_posix() for path in PAGES)


def test_links_and_anchors_lead_somewhere(site, pages):
    broken = []
    for path, page in pages.items():
        for link in page.links | page.loaded:
            if re.match(r"[a-z]+:", link) or path.name == "404.html":
                continue
            name, _, anchor = unquote(link).partition("#")
            target = (path.parent / name.partition("?")[0]).resolve() if name not in {"", "."} else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].ids | {"__toc"}):
                broken.append((path.relative_to(site).as_posix(), link))
    assert not broken


def test_nothing_is_loaded_from_elsewhere(site, pages):
    loaded = {link for page in pages.values() for link in page.loaded}
    assert loaded, "there are scripts and styles"
    assert not [link for link in loaded if re.match(r"[a-z]+:|//", link) and not link.startswith("data:")]
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", sheet.read_text(encoding="utf-8")), sheet


def test_the_search_needs_no_server(site, pages):
    index = json.loads((site / "search.json").read_text(encoding="utf-8"))
    found = {item["location"].partition("#")[0] for item in index["items"]}
    assert found >= {path.with_suffix(".html").as_posix() for path in PAGES}
    # What a page that was opened from a disk can load in its place.
    assert (site / "search.js").read_text(encoding="utf-8").startswith("var __index")
    assert all(any("iframe-worker" in link for link in page.loaded) for page in pages.values())


@pytest.mark.parametrize(
    "module",
    ["sparkrelay", "sparkrelay.testing", "sparkrelay.assignment", "sparkrelay.assignors", "sparkrelay.consumer"],
)
def test_the_reference_has_every_public_name(pages, module):
    ids = {name for path, page in pages.items() if path.parent.name == "reference" for name in page.ids}
    # A name may stand under the module that it comes from.
    shown = {name.rpartition(".")[2] for name in ids if name.startswith("sparkrelay.")}
    assert not set(importlib.import_module(module).__all__) - shown


def test_the_reference_shows_no_markup(site):
    for path in (site / "reference").glob("*.html"):
        assert not re.findall(r":(?:meth|class|func|attr|mod|data|exc):|\w::<", path.read_text()), path.name
