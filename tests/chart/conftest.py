"""Helm, by which `make chart` renders the chart: HELM names it."""

import os
import subprocess

import pytest
import yaml

CHART = "charts/sparkrelay"
#: Helm that was built without a version of its own takes an old Kubernetes for granted.
KUBERNETES = "1.37.0"
GIVEN = {"image.repository": "registry.example/delays", "image.tag": "1"}


@pytest.fixture(scope="session")
def helm(request):
    """`helm("lint", "charts/sparkrelay", {"mode": "local"})` runs Helm with values; returns the finished process."""

    def run(*words, values=None, file=None, check=True):
        if "HELM" not in os.environ:
            pytest.fail("HELM names no helm: `make chart` builds one, and sets it")
        given = GIVEN if values is None else values
        options = [f"--set={key}={value}" for key, value in given.items()]
        if file is not None:
            options += ["--values", str(file)]
        return subprocess.run(
            [os.environ["HELM"], *words, "--kube-version", KUBERNETES, *options],
            cwd=request.config.rootpath,
            capture_output=True,
            text=True,
            check=check,
            timeout=60,
        )

    return run


@pytest.fixture(scope="session")
def rendered(helm):
    """`rendered(values)` returns what the chart makes of values, by kind and name."""

    texts = {}

    def render(values):
        key = tuple(values.items())
        if key not in texts:
            texts[key] = helm("template", "delays", CHART, "--namespace", "streams", values=GIVEN | values).stdout
        return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(texts[key]) if one}

    return render
