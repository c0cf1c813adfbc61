"""What can be said of chart and image without Helm and Docker; `make chart` has the rest."""

import json
import re
import subprocess

import jsonschema
import pytest
import yaml


@pytest.fixture
def chart(project_root):
    return project_root / "charts" / "sparkrelay"


@pytest.fixture
def values(chart):
    return yaml.safe_load((chart / "values.yaml").read_text())


@pytest.fixture
def schema(chart):
    return json.loads((chart / "values.schema.json").read_text())


@pytest.fixture
def dockerfile(project_root):
    """The image's instructions, each on a line of its own."""
    text = re.sub(r"\\\n\s*", "", (project_root / "Dockerfile").read_text())
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_chart_gets_its_version_from_the_tag_like_the_package(chart, project_root):
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert (about["version"], about["appVersion"]) == ("0.0.0", "0.0.0")
    assert (
        "helm package charts/sparkrelay --version 1.2.3 --app-version 1.2.3"
        in (project_root / "CONTRIBUTING.md").read_text()
    )


def test_values_are_as_the_schema_says(values, schema):
    jsonschema.validate(values, schema)


def test_the_schema_knows_every_value_and_no_other(values, schema):
    def compare(given, known, path):
        if known.get("additionalProperties") is False:
            assert set(given) == set(known["properties"]) - {"global", "initialDelaySeconds"}, path
            for key, value in given.items():
                if isinstance(value, dict):
                    compare(value, known["properties"][key], f"{path}.{key}")

    compare(values, schema, "values")


def test_the_image_runs_as_a_number_under_an_init_process(dockerfile):
    users = [line.split()[1] for line in dockerfile if line.startswith("USER")]
    assert users == ["1000:1000"], "Kubernetes looks no name up where a pod has runAsNonRoot"
    (entry,) = (line for line in dockerfile if line.startswith("ENTRYPOINT"))
    assert json.loads(entry.removeprefix("ENTRYPOINT"))[:2] == ["/usr/bin/tini", "--"]
    assert not any(line.startswith("CMD") for line in dockerfile)


def test_the_image_has_its_users_number_in_the_chart(dockerfile, values):
    context = values["podSecurityContext"]
    assert f"USER {context['runAsUser']}:{context['runAsGroup']}" in dockerfile


def test_what_the_image_copies_is_there(dockerfile, project_root):
    copied = [line.split()[1:-1] for line in dockerfile if line.startswith("COPY") and "--from" not in line]
    names = [name for words in copied for name in words if not name.startswith("--")]
    assert {"src", "constraints.txt", "docker/entrypoint.sh", "docker/decommission.sh"} <= set(names)
    assert all((project_root / name).exists() for name in names)


def test_the_image_is_built_in_stages(dockerfile):
    assert sum(line.startswith("FROM") for line in dockerfile) == 2
    assert dockerfile[-1].startswith("ENTRYPOINT")


@pytest.fixture
def enter(project_root, tmp_path):
    """`enter(words, environment)` runs the image's entry point with a `java` that says what it was given."""
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)

    def run(words, environment):
        script = project_root / "docker" / "entrypoint.sh"
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        answer = subprocess.run(
            ["bash", str(script), *words], env={**path, **environment}, capture_output=True, text=True, check=True
        )
        return answer.stdout.splitlines()

    return run


def test_a_command_is_run_as_it_is(enter):
    assert enter(["printf", "%s\n", "a b", "c"], {}) == ["a b", "c"]


def test_an_executor_is_started_as_sparks_driver_has_said(enter):
    options = {f"SPARK_JAVA_OPT_{n}": f"-Dn{n}=a b" for n in range(12)}
    given = {
        "SPARK_HOME": "/spark",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.1.2.3:7078",
        "SPARK_EXECUTOR_ID": "7",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "1024m",
        "SPARK_APPLICATION_ID": "spark-app",
        "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
        "SPARK_EXECUTOR_POD_NAME": "delays-exec-7",
        "SPARK_RESOURCE_PROFILE_ID": "0",
    }
    said = enter(["executor"], options | given)
    assert said[:12] == list(options.values()), "in their order"
    assert said[12:16] == ["-Xms1024m", "-Xmx1024m", "-cp", "/spark/jars/*"]
    assert said[16] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    # A worker finds out by it whose it is.
    assert said[said.index("--executor-id") + 1] == "7"
    assert said[said.index("--driver-url") + 1] == given["SPARK_DRIVER_URL"]
    assert len(said) == 17 + 14


def test_kernels_of_the_image_are_put_where_others_can_be_written_once(enter, tmp_path):
    kernels, cache = tmp_path / "kernels", tmp_path / "cache" / "numba"
    kernels.mkdir()
    (kernels / "loop.nbc").write_text("of the image")
    environment = {"SPARKRELAY_KERNELS": str(kernels), "NUMBA_CACHE_DIR": str(cache)}
    assert enter(["cat", str(cache / "loop.nbc")], environment) == ["of the image"]
    (cache / "loop.nbc").write_text("compiled here")
    assert enter(["cat", str(cache / "loop.nbc")], environment) == ["compiled here"]
    assert enter(["ls", str(kernels)], environment | {"NUMBA_CACHE_DIR": str(kernels)}) == ["loop.nbc"]
