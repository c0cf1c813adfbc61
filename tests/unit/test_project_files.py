"""What is around the code: workflows, templates of issues, the citation, and what they say of one another."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SEEN = [name.rsplit(" ", 1)[-1] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]


def read(path):
    return yaml.safe_load(path.read_text())


def jobs():
    return [(path.name, name, job) for path in WORKFLOWS for name, job in read(path)["jobs"].items()]


def steps():
    return [step for _, _, job in jobs() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_unless_a_job_says_more(path):
    assert read(path)["permissions"] == {"contents": "read"}


def test_only_the_job_that_publishes_can_prove_who_it_is():
    assert [(file, name) for file, name, job in jobs() if "permissions" in job] == [("release.yml", "publish")]


def test_each_job_has_a_bound():
    assert all(job["timeout-minutes"] for _, _, job in jobs())


def test_actions_are_pinned_to_a_version():
    used = {step["uses"] for step in steps() if "uses" in step}
    assert used
    assert not [name for name in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@v\d+\.\d+\.\d+", name)]


def test_a_checkout_that_is_built_has_its_tags():
    """The version is made of them, and a shallow clone has none."""
    checkouts = [step["with"] for step in steps() if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(settings["fetch-depth"] == 0 for settings in checkouts)


def test_the_pythons_that_are_tried_are_those_that_the_package_names():
    tried = [
        job["strategy"]["matrix"]["python"]
        for _, _, job in jobs()
        if "python" in job.get("strategy", {}).get("matrix", {})
    ]
    assert tried == [SEEN] * 2
    assert PROJECT["requires-python"] == f">={SEEN[0]}"


def test_what_workflows_make_is_in_the_makefile():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    made = [name for step in steps() for name in re.findall(r"^make (\S+)", step.get("run", ""), re.MULTILINE)]
    assert made
    assert set(made) <= set(targets)


def test_issue_forms_have_what_a_form_needs():
    forms = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert forms
    for path in forms:
        form = read(path)
        assert {"name", "description", "body"} <= form.keys()
        fields = [field for field in form["body"] if field["type"] != "markdown"]
        assert len({field["id"] for field in fields}) == len(fields)
        assert all(field["attributes"]["label"] for field in fields)


def test_the_citation_is_the_projects():
    citation = read(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert citation["license"] == PROJECT["license"]
    assert PROJECT["description"] in citation["title"]
    assert citation["authors"]
    assert citation["message"]


def test_an_upper_bound_has_its_reason_beside_it():
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    first, last = lines.index("dependencies = ["), lines.index("[dependency-groups]")
    bounded = [number for number in range(first, last) if re.search(r'^\s*(\w+ = \[)?"[^"]*(<|==)', lines[number])]
    assert bounded
    assert not [lines[number] for number in bounded if not lines[number - 1].strip().startswith("#")]
