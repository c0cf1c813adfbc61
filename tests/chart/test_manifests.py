"""What the chart makes of values: valid for Kubernetes, and as operations.md and a cautious cluster want it."""

import functools
import json
import os
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml
from tests.chart.conftest import CHART, GIVEN

LOCAL = {}
EXECUTORS = {"mode": "executors"}
VARIANTS = {
    "local": LOCAL,
    "local, everything": {
        "metrics.serviceMonitor.enabled": "true",
        "queries.port": "9405",
        "state.storageClassName": "local-disks",
        "antiAffinity": "preferred",
        "networkPolicy.egress[0].to[0].ipBlock.cidr": "10.0.0.0/8",
        "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name": "monitoring",
        "env[0].name": "KAFKA",
        "env[0].value": "kafka-1:9092",
        "envFrom[0].secretRef.name": "kafka-credentials",
        "imagePullSecrets[0].name": "registry",
        "nodeSelector.disk": "nvme",
        "tolerations[0].operator": "Exists",
        "podLabels.team": "delays",
        "podAnnotations.team": "delays",
        "priorityClassName": "high",
        "sparkConf.spark\\.driver\\.memory": "2g",
        "args[0]": "--topic=flights",
        "image.digest": "sha256:" + "0" * 64,
    },
    "local, bare": {
        "podDisruptionBudget.enabled": "false",
        "networkPolicy.enabled": "false",
        "probes.liveness.enabled": "false",
        "antiAffinity": "none",
        "serviceAccount.name": "given",
        "replicas": "0",
    },
    "executors": EXECUTORS,
    "executors, everything": EXECUTORS
    | {
        "metrics.serviceMonitor.enabled": "true",
        "networkPolicy.egress[0].to[0].ipBlock.cidr": "10.0.0.0/8",
        "executors.limitCores": "3",
        "executors.state.storageClassName": "local-disks",
        "executors.nodeSelector.disk": "nvme",
        "executors.tolerations[0].operator": "Exists",
        "executors.annotations.team": "delays",
        "executors.antiAffinity": "required",
        "envFrom[0].secretRef.name": "kafka-credentials",
        "imagePullSecrets[0].name": "registry",
    },
    "executors, hostPath": EXECUTORS | {"executors.state.kind": "hostPath", "replicas": "0"},
    "executors, emptyDir": EXECUTORS | {"executors.state.kind": "emptyDir", "replicas": "1"},
}
#: Of the Prometheus operator, whose schemas nobody ships.
FOREIGN = {"ServiceMonitor"}
#: What is bound by operations.md, "Stopping": the micro-batch, three quarters of max.poll.interval.ms, and the brokers.
LONGEST_STOP_SECONDS = 225 + 60

each = pytest.mark.parametrize("variant", VARIANTS)


@pytest.fixture
def made(rendered, variant):
    return rendered(VARIANTS[variant])


@pytest.fixture(scope="module")
def executor_pod(rendered, tmp_path_factory, request):
    """`executor_pod(values)` returns the pod that Spark makes of an executor."""

    @functools.cache
    def make(variant):
        folder = tmp_path_factory.mktemp("conf")
        for name, text in rendered(VARIANTS[variant])["ConfigMap", "delays-spark"]["data"].items():
            (folder / name).write_text(text)
        root = request.config.rootpath
        answer = subprocess.run(
            [sys.executable, "-m", "tests.chart.executor_pod", str(folder)],
            cwd=root,
            env={**os.environ, "POD_IP": "10.1.2.3", "POD_NAME": "delays-0", "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert answer.returncode == 0, answer.stderr[-3000:]
        return json.loads(answer.stdout.splitlines()[-1])

    return make


def pod_of(made):
    return made["StatefulSet", "delays"]["spec"]["template"]["spec"]


@each
@pytest.mark.parametrize("version", ["1.27", "1.32", "1.37"])
def test_kubernetes_takes_it(made, version):
    for (kind, name), manifest in made.items():
        if kind not in FOREIGN:
            kubernetes_validate.validate(manifest, version, strict=True)
        assert manifest["metadata"]["labels"]["app.kubernetes.io/instance"] == "delays", name


@each
def test_helm_finds_nothing_wrong(helm, variant):
    answer = helm("lint", "--strict", CHART, values=GIVEN | VARIANTS[variant])
    assert "0 chart(s) failed" in answer.stdout
    assert "WARNING" not in answer.stdout
    assert "ERROR" not in answer.stdout


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mode": "yarn"}, "'local', 'executors'"),
        ({"replicas": "-1"}, "/replicas"),
        ({"terminationGracePeriodSeconds": "10"}, "/terminationGracePeriodSeconds"),
        ({"podSecurityContext.runAsUser": "0"}, "/podSecurityContext/runAsUser"),
        ({"podSecurityContext.runAsNonRoot": "false"}, "/podSecurityContext/runAsNonRoot"),
        ({"state.accessModes[0]": "ReadWriteMany"}, "/state/accessModes"),
        ({"sparkConf.master": "x"}, "master"),
        ({"replica": "2"}, "replica"),
        ({"image.repository": ""}, "image.repository: name your image"),
        ({"image.tag": ""}, "image.tag: say which image"),
    ],
)
def test_what_cannot_be_is_refused(helm, values, words):
    answer = helm("template", "delays", CHART, values=GIVEN | values, check=False)
    assert answer.returncode
    assert words in answer.stderr


@each
def test_nobody_is_root_and_nobody_can_become_it(made):
    pod = pod_of(made)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == 1000
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@each
def test_a_stop_gets_the_time_that_it_may_take(made):
    assert pod_of(made)["terminationGracePeriodSeconds"] >= LONGEST_STOP_SECONDS


@each
def test_probes_ask_the_endpoint(made, variant):
    (container,) = pod_of(made)["containers"]
    assert {"name": "metrics", "containerPort": 9404} in container["ports"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "metrics"}
    assert container["startupProbe"]["httpGet"] == {"path": "/health", "port": "metrics"}
    if variant == "local, bare":
        assert "livenessProbe" not in container
    else:
        probe = container["livenessProbe"]
        assert probe["httpGet"] == {"path": "/health", "port": "metrics"}
        # The instance itself ends sooner, after executor.wait.timeout.ms.
        assert probe["periodSeconds"] * probe["failureThreshold"] > 300


@each
def test_python_is_started_without_a_shell_by_the_images_init_process(made):
    (container,) = pod_of(made)["containers"]
    assert "command" not in container
    assert container["args"][:2] == ["python", "/app/pipeline.py"]


@each
def test_state_of_instances_is_on_claims(made, variant):
    spec = made["StatefulSet", "delays"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    if variant.startswith("local"):
        (claim,) = spec["volumeClaimTemplates"]
        assert claim["spec"]["resources"]["requests"]["storage"] == "20Gi"
        assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
        assert mounted[claim["metadata"]["name"]] == "/var/lib/sparkrelay"
        assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    else:
        assert "volumeClaimTemplates" not in spec
        assert "state" not in mounted
    assert mounted["tmp"] == "/tmp"
    assert {volume["name"] for volume in spec["template"]["spec"]["volumes"]} == {"tmp", "cache", "spark"}


@each
def test_budgets_fit_the_pods(made, variant):
    budgets = {name: one["spec"] for (kind, name), one in made.items() if kind == "PodDisruptionBudget"}
    if variant == "local, bare":
        assert not budgets
        return
    assert budgets["delays"]["maxUnavailable"] == 1
    if variant.startswith("executors"):
        replicas = made["StatefulSet", "delays"]["spec"]["replicas"]
        assert budgets["delays-executor"]["minAvailable"] == max(0, 3 * replicas - 1)


@each
def test_selectors_find_their_pods_and_no_others(made, variant):
    labels = made["StatefulSet", "delays"]["spec"]["template"]["metadata"]["labels"]
    finds = [made["Service", "delays"]["spec"]["selector"]]
    finds.append(made["StatefulSet", "delays"]["spec"]["selector"]["matchLabels"])
    if ("PodDisruptionBudget", "delays") in made:
        finds.append(made["PodDisruptionBudget", "delays"]["spec"]["selector"]["matchLabels"])
    for find in finds:
        assert find.items() <= labels.items()
    if variant.startswith("executors"):
        template = yaml.safe_load(made["ConfigMap", "delays-spark"]["data"]["executor.yaml"])
        executors = template["metadata"]["labels"]
        assert not any(find.items() <= executors.items() for find in finds)
        find = made["PodDisruptionBudget", "delays-executor"]["spec"]["selector"]["matchLabels"]
        assert find.items() <= executors.items()
        assert not find.items() <= labels.items()


@each
def test_only_a_driver_may_ask_the_api_server(made, variant):
    pod = pod_of(made)
    assert pod["automountServiceAccountToken"] is variant.startswith("executors")
    account = "given" if variant == "local, bare" else "delays"
    assert pod["serviceAccountName"] == account
    roles = [one for (kind, _), one in made.items() if kind == "Role"]
    if variant.startswith("local"):
        assert not roles
        return
    (binding,) = (one for (kind, _), one in made.items() if kind == "RoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "streams"}]
    assert all("*" not in rule["verbs"] + rule["resources"] for rule in roles[0]["rules"])
    assert not made["ServiceAccount", "delays-executor"]["automountServiceAccountToken"]


@each
def test_from_outside_only_metrics_are_reached(made, variant):
    if variant == "local, bare":
        assert ("NetworkPolicy", "delays") not in made
        return
    policy = made["NetworkPolicy", "delays"]["spec"]
    *inner, metrics = policy["ingress"]
    assert metrics["ports"] == [{"protocol": "TCP", "port": 9404}]
    assert all([*rule] == ["from"] and [*rule["from"][0]] == ["podSelector"] for rule in inner)
    assert bool(inner) is (variant.startswith("executors") or "everything" in variant)
    assert ("Egress" in policy["policyTypes"]) is ("everything" in variant)
    if "everything" in variant:
        assert {"protocol": "UDP", "port": 53} in policy["egress"][1]["ports"]


def test_the_monitor_finds_the_service(rendered):
    made = rendered(VARIANTS["local, everything"])
    monitor = made["ServiceMonitor", "delays"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= made["Service", "delays"]["metadata"]["labels"].items()
    assert monitor["endpoints"] == [{"port": "metrics", "path": "/metrics", "interval": "15s"}]
    assert "metrics" in {port["name"] for port in made["Service", "delays"]["spec"]["ports"]}
    assert ("ServiceMonitor", "delays") not in rendered(LOCAL)


def test_changed_settings_of_spark_make_new_pods(rendered):
    sums = {
        made["StatefulSet", "delays"]["spec"]["template"]["metadata"]["annotations"]["checksum/spark"]
        for made in (rendered(LOCAL), rendered({"cores": "3"}))
    }
    assert len(sums) == 2


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name.startswith("executors")])
def test_spark_makes_executors_that_kubernetes_takes(executor_pod, variant):
    pod = executor_pod(variant)
    kubernetes_validate.validate(pod, "1.37", strict=True)
    (container,) = pod["spec"]["containers"]
    environment = {one["name"]: one for one in container["env"]}
    assert environment["SPARK_DRIVER_URL"]["value"] == "spark://CoarseGrainedScheduler@10.1.2.3:7078"
    assert environment["SPARKRELAY_CLIENT_TAG_HOST"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert container["args"] == ["executor"]
    assert container["image"] == "registry.example/delays:1"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert pod["spec"]["securityContext"]["runAsUser"] == 1000
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["serviceAccountName"] == "delays-executor"
    assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "executor"
    assert container["resources"]["limits"]["memory"] == "4096Mi"
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert len(mounts) == len(set(mounts))
    assert {"/tmp", "/var/cache/sparkrelay", "/var/lib/sparkrelay"} < set(mounts)
    (state,) = (volume for volume in pod["spec"]["volumes"] if volume["name"] == "state")
    kind = variant.rpartition(", ")[2]
    wanted = {"hostPath": "hostPath", "emptyDir": "emptyDir"}.get(kind, "persistentVolumeClaim")
    assert wanted in state
