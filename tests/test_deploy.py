"""The operator's files: each is parsed, held against its published schema, and against the code that it configures.

What no test here can say is whether an image builds and a cluster takes it: there is neither on the machines that run
these tests. Where kubectl and promtool are installed, they have a say.
"""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import jsonschema
import kubernetes_validate
import promql_parser
import pytest
import trustme
import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry

from rewriter import __version__
from serving.answer import Outcome, PassthroughReason
from serving.client import DEFAULT_TIMEOUT_SECONDS
from serving.config import ServerSettings
from serving.metrics import Metrics
from serving.pb import rewriter_pb2 as pb
from serving.processes.metrics import WorkerMetrics
from serving.resilience_metrics import ResilienceMetrics
from serving.settings import CONFIG_VARIABLE, load
from serving.settings_keys import keys
from serving.tf_serving.buckets import Buckets, batching_parameters
from serving.tf_serving.settings import TFServingSettings

REPOSITORY = Path(__file__).parent.parent
DEPLOY = REPOSITORY / "serving/deploy"
CONFIG = REPOSITORY / "serving/tf_serving_config"
KUBERNETES = DEPLOY / "kubernetes"
MONITORING = DEPLOY / "monitoring"
DOCUMENT = REPOSITORY / "docs/deploy.md"

SERVICE = pb.DESCRIPTOR.services_by_name["RewriterService"].full_name
DEFAULTS = ServerSettings.model_construct()
SETTINGS = {key.variable for key in keys().values()} | {CONFIG_VARIABLE}
DOCKERFILES = ["front.Dockerfile", "tf_serving.Dockerfile"]
FILES = sorted(path for folder in (DEPLOY, CONFIG) for path in folder.rglob("*") if path.suffix not in (".pyc", ""))
# The oldest Kubernetes that docs/deploy.md promises, and a new one.
KUBERNETES_VERSIONS = ["1.30", "1.37"]
# Megabytes of JSON, otherwise read anew for every resource.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)


# -- TF Serving ------------------------------------------------------------------------------------------------------

# Not in the wheel of tensorflow-serving-api: the fields of TF Serving's session_bundle_config.proto and
# monitoring_config.proto that operators set, with their numbers.
_PROTOS = """
syntax = "proto3";
package tensorflow.serving;
import "google/protobuf/wrappers.proto";
message BatchingParameters {
  google.protobuf.Int64Value max_batch_size = 1;
  google.protobuf.Int64Value batch_timeout_micros = 2;
  google.protobuf.Int64Value max_enqueued_batches = 3;
  google.protobuf.Int64Value num_batch_threads = 4;
  google.protobuf.StringValue thread_pool_name = 5;
  repeated int64 allowed_batch_sizes = 6;
  bool pad_variable_length_inputs = 7;
}
message PrometheusConfig { bool enable = 1; string path = 2; }
message MonitoringConfig { PrometheusConfig prometheus_config = 1; }
"""

# The flags of main.cc that the operator's files may use.
_TF_SERVING_FLAGS = {
    *("port", "grpc_max_threads", "grpc_channel_arguments", "rest_api_port", "monitoring_config_file"),
    *("model_config_file", "model_config_file_poll_wait_seconds", "allow_version_labels_for_unavailable_models"),
    *("enable_batching", "batching_parameters_file", "enable_profiler"),
}


@pytest.fixture(scope="module")
def protos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, type[Message]]:
    folder = tmp_path_factory.mktemp("protos")
    (folder / "operators.proto").write_text(_PROTOS)
    arguments = [f"-I{folder}", "--include_imports"]
    arguments += [f"--descriptor_set_out={folder / 'set'}", str(folder / "operators.proto")]
    # In a process of its own: beside TensorFlow's copy of protobuf the compiler can crash the interpreter.
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True)
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString((folder / "set").read_bytes()).file:
        pool.Add(file)
    found = message_factory.GetMessageClassesForFiles(["operators.proto"], pool)
    return {name.rpartition(".")[2]: kind for name, kind in found.items()}


def _models(name: str) -> Any:
    from tensorflow_serving.config import model_server_config_pb2

    [model] = text_format.Parse(
        (CONFIG / name).read_text(), model_server_config_pb2.ModelServerConfig()
    ).model_config_list.config
    return model


@pytest.mark.parametrize("name", ["models.config", "models.canary.config"])
def test_labels_point_to_versions_that_are_loaded(name: str) -> None:
    model = _models(name)
    assert model.name == TFServingSettings().model_name
    assert model.model_platform == "tensorflow"
    assert set(model.version_labels.values()) == set(model.model_version_policy.specific.versions)
    assert "stable" in model.version_labels


def test_a_trial_adds_a_version_and_a_label_and_moves_none() -> None:
    """TF Serving refuses to move a label to a version that is not loaded yet, and then does not load it."""
    before, during = _models("models.config"), _models("models.canary.config")
    assert dict(during.version_labels) == {**before.version_labels, "canary": 2}
    assert set(during.model_version_policy.specific.versions) > set(before.model_version_policy.specific.versions)


def test_batching_parameters_are_those_that_the_front_writes_for_an_exported_model(protos: Any) -> None:
    lengths, sizes = _exported("LENGTH_BUCKETS"), _exported("BATCH_SIZES")
    kind = protos["BatchingParameters"]
    found = text_format.Parse((CONFIG / "batching.config").read_text(), kind())
    assert found == text_format.Parse(batching_parameters(Buckets(lengths, sizes)), kind())
    assert list(found.allowed_batch_sizes) == list(sizes)
    assert found.max_batch_size.value == sizes[-1]
    assert not found.pad_variable_length_inputs


def test_metrics_are_scraped_where_tf_serving_answers_them(protos: Any) -> None:
    config = text_format.Parse((CONFIG / "monitoring.config").read_text(), protos["MonitoringConfig"]())
    assert config.prometheus_config.enable
    paths = {job.get("metrics_path") for name in ("prometheus", "prometheus.kubernetes") for job in _jobs(name)}
    [_, monitor] = _read(KUBERNETES / "components/prometheus-operator/pod-monitors.yaml")
    paths.add(monitor["spec"]["podMetricsEndpoints"][0]["path"])
    assert paths == {config.prometheus_config.path, None}


def _exported(name: str) -> tuple[int, ...]:
    """A constant of rewriter.export, which cannot be imported without Keras and TensorFlow."""
    found = re.search(rf"^{name} = \(([\d, ]+)\)$", (REPOSITORY / "rewriter/export.py").read_text(), re.MULTILINE)
    assert found
    return tuple(map(int, found[1].split(",")))


def _tf_serving_commands() -> list[list[str]]:
    compose = _compose()["services"]
    return [
        *(compose[name]["command"] for name in ("tf-serving", "tf-serving-gpu")),
        *(_container(_one(_render("gpu", *more), "StatefulSet", "tf-serving"))["args"] for more in _gpu_variants()),
    ]


def test_tf_serving_is_started_with_flags_that_it_has_and_files_that_exist() -> None:
    for arguments in _tf_serving_commands():
        flags = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
        assert set(flags) <= _TF_SERVING_FLAGS
        assert (flags["port"], flags["rest_api_port"]) == ("8500", "8501")
        assert flags["enable_profiler"] == "false"
        assert flags["allow_version_labels_for_unavailable_models"] == "true"
        assert int(flags["grpc_max_threads"]) >= 2 * max(_exported("BATCH_SIZES"))
        # It refuses to start with the file and without the flag.
        assert ("batching_parameters_file" in flags) == (flags.get("enable_batching") == "true")
        for path in (value for value in flags.values() if value.startswith("/config/")):
            assert (CONFIG / Path(path).name).is_file()


def test_tf_serving_allows_the_pings_that_fronts_send() -> None:
    for arguments in _tf_serving_commands():
        [channel] = [a.split("=", 1)[1] for a in arguments if a.startswith("--grpc_channel_arguments=")]
        allowed = dict(pair.split("=") for pair in channel.split(","))["grpc.http2.min_ping_interval_without_data_ms"]
        for environment in _front_environments():
            keepalive = environment.get("REWRITER_TF_SERVING__KEEPALIVE_SECONDS")
            assert keepalive is None or int(allowed) <= float(keepalive) * 1000


# -- Kubernetes ------------------------------------------------------------------------------------------------------


def _read(path: Path) -> list[Any]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def _resources(folder: Path) -> list[Any]:
    """What ``kubectl kustomize`` makes of a folder, for the parts of kustomize that ours use."""
    [kustomization] = _read(folder / "kustomization.yaml")
    known = {"apiVersion", "kind", "namespace", "resources", "configMapGenerator", "generatorOptions", "images"}
    assert set(kustomization) <= known | {"patches"}
    found = []
    for name in kustomization.get("resources", []):
        found += _resources(folder / name) if (folder / name).is_dir() else _read(folder / name)
    for generator in kustomization.get("configMapGenerator", []):
        data = {name: (folder / name).read_text() for name in generator["files"]}
        found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data})
    if "namespace" in kustomization:
        for resource in found:
            if resource["kind"] != "Namespace":
                resource["metadata"]["namespace"] = kustomization["namespace"]
    tags = {image["name"]: image["newTag"] for image in kustomization.get("images", [])}
    for container in (container for resource in found for container in _containers(resource)):
        image, _, tag = container["image"].rpartition(":")
        container["image"] = f"{image}:{tags.get(image, tag)}"
    _patch(found, kustomization)
    return found


def _patch(resources: list[Any], kustomization: Any) -> None:
    for patch in kustomization.get("patches", []):
        what = yaml.safe_load(patch["patch"])
        if isinstance(what, list):
            resource = _one(resources, patch["target"]["kind"], patch["target"]["name"])
            for operation in what:
                _operate(resource, operation)
        else:
            _merge(_one(resources, what["kind"], what["metadata"]["name"]), what)


def _operate(resource: Any, operation: Any) -> None:
    """A JSON patch (RFC 6902)."""
    *parents, last = operation["path"].removeprefix("/").split("/")
    place = resource
    for name in parents:
        place = place[int(name) if isinstance(place, list) else name]
    if operation["op"] == "add" and isinstance(place, list):
        assert last == "-"
        place.append(operation["value"])
    elif operation["op"] == "remove":
        del place[last]
    else:
        raise AssertionError(operation)


_MERGED_BY = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath"}


def _merge(place: Any, changes: Any) -> None:
    """A strategic merge patch."""
    for name, value in changes.items():
        if value is None:
            place.pop(name, None)
        elif name in _MERGED_BY:
            _merge_list(place[name], value, _MERGED_BY[name])
        elif isinstance(value, dict):
            _merge(place.setdefault(name, {}), value)
        else:
            place[name] = value


def _merge_list(places: list[Any], changes: list[Any], key: str) -> None:
    for change in changes:
        found = [place for place in places if place[key] == change[key]]
        if change.get("$patch") == "delete":
            places.remove(*found)
        elif found:
            _merge(found[0], change)
        else:
            places.append(change)


@cache
def _rendered(overlay: str, components: tuple[str, ...]) -> list[Any]:
    found = _resources(KUBERNETES / overlay)
    for name in components:
        [component] = _read(KUBERNETES / "components" / name / "kustomization.yaml")
        assert component["kind"] == "Component"
        for resource in component.get("resources", []):
            found += _read(KUBERNETES / "components" / name / resource)
        _patch(found, component)
    return found


def _render(overlay: str, *components: str) -> list[Any]:
    return copy.deepcopy(_rendered(overlay, components))


def _gpu_variants() -> list[tuple[str, ...]]:
    return [(), ("tls", "queue-depth", "server-batching", "prometheus-operator")]


VARIANTS = [
    *(("gpu", *components) for components in _gpu_variants()),
    ("embedded",),
    ("embedded", "tls", "queue-depth-embedded", "prometheus-operator"),
]
_WORKLOADS = ("Deployment", "StatefulSet")
variants = pytest.mark.parametrize("variant", VARIANTS, ids="+".join)


def _one(resources: list[Any], kind: str, name: str) -> Any:
    [found] = [r for r in resources if r["kind"] == kind and r["metadata"]["name"] == name]
    return found


def _of_kind(resources: list[Any], *kinds: str) -> list[Any]:
    return [resource for resource in resources if resource["kind"] in kinds]


def _pod(resource: Any) -> Any:
    return resource["spec"] if resource["kind"] == "Pod" else resource["spec"]["template"]["spec"]


def _containers(resource: Any) -> list[Any]:
    return _pod(resource)["containers"] if resource["kind"] in ("Pod", *_WORKLOADS) else []


def _container(resource: Any) -> Any:
    [container] = _containers(resource)
    return container


def _environment(container: Any) -> dict[str, str]:
    found = Counter(variable["name"] for variable in container.get("env", []))
    assert all(count == 1 for count in found.values())
    return {variable["name"]: variable["value"] for variable in container.get("env", [])}


def _labels(deployment: Any) -> dict[str, str]:
    return dict(deployment["spec"]["template"]["metadata"]["labels"])


def test_every_component_is_in_a_variant() -> None:
    tested = {component for _, *components in VARIANTS for component in components}
    assert tested == {path.name for path in (KUBERNETES / "components").iterdir()}


@variants
@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_kubernetes_knows_every_field(variant: tuple[str, ...], version: str) -> None:
    for resource in _render(*variant) + _read(KUBERNETES / "tools/models-pod.yaml"):
        if resource["kind"] != "PodMonitor":
            kubernetes_validate.validate(resource, version, strict=True)


@variants
@pytest.mark.skipif(not shutil.which("kubectl"), reason="expected kubectl on the PATH, found none")
def test_kubectl_makes_the_same_of_it(variant: tuple[str, ...], tmp_path: Path) -> None:
    overlay, *components = variant
    root = os.path.relpath(KUBERNETES, tmp_path.resolve())
    kustomization = {
        "resources": [f"{root}/{overlay}"],
        "components": [f"{root}/components/{name}" for name in components],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    environment = {**os.environ, "KUBECONFIG": os.devnull, "HOME": str(tmp_path)}
    made = subprocess.run(
        ["kubectl", "kustomize", str(tmp_path)], capture_output=True, check=True, text=True, env=environment
    ).stdout
    assert _sorted(list(yaml.safe_load_all(made))) == _sorted(_render(*variant))


def _sorted(value: Any) -> Any:
    """Tables in lists in one order: a merge has an order of its own, which means nothing."""
    if isinstance(value, dict):
        return {key: _sorted(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted(map(_sorted, value), key=lambda each: json.dumps(each, sort_keys=True))
    return value


@variants
def test_pods_have_no_more_rights_than_they_need(variant: tuple[str, ...]) -> None:
    resources = _render(*variant) + _read(KUBERNETES / "tools/models-pod.yaml")
    for resource in resources:
        for container in _containers(resource):
            pod, own = _pod(resource), container["securityContext"]
            assert pod["automountServiceAccountToken"] is False
            assert pod["enableServiceLinks"] is False
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["securityContext"]["runAsUser"] >= 10000
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert own["allowPrivilegeEscalation"] is False
            assert own["readOnlyRootFilesystem"] is True
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}
            assert {mount["name"] for mount in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    for account in _of_kind(resources, "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False
    for deployment in _of_kind(resources, *_WORKLOADS):
        assert _one(resources, "ServiceAccount", _pod(deployment)["serviceAccountName"])


@variants
def test_resources_are_asked_for_and_memory_is_limited_to_that(variant: tuple[str, ...]) -> None:
    for deployment in _of_kind(_render(*variant), *_WORKLOADS):
        asked = _container(deployment)["resources"]
        assert set(asked["requests"]) == {"cpu", "memory"}
        assert asked["limits"]["memory"] == asked["requests"]["memory"]
        assert "cpu" not in asked["limits"]
        assert ("nvidia.com/gpu" in asked["limits"]) == (deployment["metadata"]["name"] == "tf-serving")


@variants
def test_everything_that_selects_pods_selects_a_deployment(variant: tuple[str, ...]) -> None:
    resources = _render(*variant)
    deployments = {d["metadata"]["name"]: d for d in _of_kind(resources, *_WORKLOADS)}
    for name, deployment in deployments.items():
        labels, spec = _labels(deployment), deployment["spec"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        budget = _one(resources, "PodDisruptionBudget", name)["spec"]
        assert budget["selector"]["matchLabels"].items() <= labels.items()
        assert budget["maxUnavailable"] == 1
        service = _one(resources, "Service", name)["spec"]
        assert service["selector"].items() <= labels.items()
        assert service["clusterIP"] == "None"
        ports = {port["name"]: port["containerPort"] for port in _container(deployment)["ports"]}
        assert all(ports[port["targetPort"]] == port["port"] for port in service["ports"])
        policy = _one(resources, "NetworkPolicy", name)["spec"]
        assert policy["podSelector"]["matchLabels"].items() <= labels.items()
        assert {p["port"] for rule in policy["ingress"] for p in rule["ports"]} == set(ports)
        constraints = spec["template"]["spec"]["topologySpreadConstraints"]
        assert {c["topologyKey"] for c in constraints} == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}
        assert all(c["labelSelector"]["matchLabels"].items() <= labels.items() for c in constraints)
    for autoscaler in _of_kind(resources, "HorizontalPodAutoscaler"):
        target = autoscaler["spec"]["scaleTargetRef"]
        assert target["kind"] == deployments[target["name"]]["kind"]
        # Two that decide on their number would undo each other's decisions at every apply.
        assert "replicas" not in deployments[target["name"]]["spec"]
        assert autoscaler["spec"]["minReplicas"] >= 2
    for monitor in _of_kind(resources, "PodMonitor"):
        deployments_selected = [
            d for d in deployments.values() if monitor["spec"]["selector"]["matchLabels"].items() <= _labels(d).items()
        ]
        for deployment in deployments_selected:
            [endpoint] = monitor["spec"]["podMetricsEndpoints"]
            assert endpoint["port"] in {port["name"] for port in _container(deployment)["ports"]}


@variants
def test_nothing_is_allowed_that_no_policy_names(variant: tuple[str, ...]) -> None:
    resources = _render(*variant)
    nothing = _one(resources, "NetworkPolicy", "nothing")["spec"]
    assert nothing == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for policy in _of_kind(resources, "NetworkPolicy"):
        for rule in [*policy["spec"].get("ingress", []), *policy["spec"].get("egress", [])]:
            assert rule.get("from") or rule.get("to")
            assert rule["ports"]
    namespace = _one(resources, "Namespace", "rewriter")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {r["metadata"].get("namespace") for r in resources} == {"rewriter", None}


@variants
def test_a_front_is_probed_by_its_grpc_health(variant: tuple[str, ...]) -> None:
    container = _container(_one(_render(*variant), "Deployment", "rewriter"))
    probes = {name: container[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}
    assert all(len(probe.keys() & {"grpc", "exec", "httpGet", "tcpSocket"}) == 1 for probe in probes.values())
    if "tls" in variant:
        # Kubernetes does not speak gRPC over TLS.
        commands = {name: probe["exec"]["command"] for name, probe in probes.items()}
        assert all(command[:2] == ["python", "/opt/rewriter/healthcheck.py"] for command in commands.values())
        asked = {name: "".join(command[2:]) for name, command in commands.items()}
    else:
        assert {p["grpc"]["port"] for p in probes.values()} == {DEFAULTS.port}
        asked = {name: p["grpc"].get("service", "") for name, p in probes.items()}
    assert asked == {"startup": "", "readiness": SERVICE, "liveness": ""}
    patience = {name: probe["periodSeconds"] * probe["failureThreshold"] for name, probe in probes.items()}
    assert patience["startup"] > DEFAULTS.warm_up_timeout_seconds
    assert patience["liveness"] > patience["readiness"]


@variants
def test_a_front_may_take_longer_to_start_than_what_it_waits_for(variant: tuple[str, ...]) -> None:
    workloads = {each["metadata"]["name"]: each for each in _of_kind(_render(*variant), *_WORKLOADS)}
    seconds = {name: _startup_seconds(each) for name, each in workloads.items()}
    assert seconds["rewriter"] > seconds.get("tf-serving", 0)
    # Or a rollout would be called failed while a front may still start.
    assert workloads["rewriter"]["spec"]["progressDeadlineSeconds"] > seconds["rewriter"]


def _startup_seconds(workload: Any) -> int:
    probe = _container(workload)["startupProbe"]
    return int(probe["periodSeconds"] * probe["failureThreshold"])


@variants
def test_there_is_time_to_drain(variant: tuple[str, ...]) -> None:
    for deployment in _of_kind(_render(*variant), *_WORKLOADS):
        pod = _pod(deployment)
        left = pod["terminationGracePeriodSeconds"] - _container(deployment)["lifecycle"]["preStop"]["sleep"]["seconds"]
        if deployment["metadata"]["name"] == "rewriter":
            assert left >= _stop_seconds() + 5
        else:
            assert left >= DEFAULTS.default_deadline_seconds


def _stop_seconds() -> float:
    resilience = DEFAULTS.resilience
    return DEFAULTS.shutdown_grace_seconds + resilience.drain_delay_seconds + resilience.close_seconds


def test_tf_serving_is_ready_once_it_answers_and_alive_while_it_listens() -> None:
    container = _container(_one(_render("gpu"), "StatefulSet", "tf-serving"))
    path = f"/v1/models/{TFServingSettings().model_name}/metadata"
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": path, "port": "rest"}
    assert container["livenessProbe"]["tcpSocket"] == {"port": "grpc"}
    assert path in (DEPLOY / "tf_serving.Dockerfile").read_text()


def test_a_changed_models_config_reaches_tf_serving_while_it_runs() -> None:
    """A mounted ConfigMap follows only if its name stays and no single file of it is mounted (subPath)."""
    resources = _render("gpu")
    deployment = _one(resources, "StatefulSet", "tf-serving")
    [volume] = [v for v in _pod(deployment)["volumes"] if v["name"] == "config"]
    config = _one(resources, "ConfigMap", volume["configMap"]["name"])
    assert set(config["data"]) == {"models.config", "batching.config", "monitoring.config"}
    [mount] = [m for m in _container(deployment)["volumeMounts"] if m["name"] == "config"]
    assert mount["mountPath"] == "/config"
    assert "subPath" not in mount


@pytest.mark.parametrize("components", [(), ("queue-depth",)])
def test_fronts_know_every_tf_serving_by_its_name(components: tuple[str, ...]) -> None:
    resources = _render("gpu", *components)
    servers = _one(resources, "StatefulSet", "tf-serving")
    service = _one(resources, "Service", servers["spec"]["serviceName"])["spec"]
    # A pod that has just become ready would be unknown to the name servers for a while.
    assert service["publishNotReadyAddresses"] is True
    count = servers["spec"].get("replicas")
    if count is None:
        scaled = [a["spec"] for a in _of_kind(resources, "HorizontalPodAutoscaler")]
        [count] = [spec["maxReplicas"] for spec in scaled if spec["scaleTargetRef"]["name"] == "tf-serving"]
    front = _environment(_container(_one(resources, "Deployment", "rewriter")))
    [port] = [port["port"] for port in service["ports"] if port["name"] == "grpc"]
    expected = [f"tf-serving-{number}.tf-serving:{port}" for number in range(count)]
    assert json.loads(front["REWRITER_TF_SERVING__ADDRESSES"]) == expected


def test_queues_are_scaled_at_one_full_batch_or_before_the_limit() -> None:
    [autoscaler] = [
        a
        for a in _of_kind(_render("gpu", "queue-depth"), "HorizontalPodAutoscaler")
        if a["metadata"]["name"] == "tf-serving"
    ]
    [metric] = autoscaler["spec"]["metrics"]
    assert int(metric["external"]["target"]["averageValue"]) == max(_exported("BATCH_SIZES"))
    [autoscaler] = _of_kind(_render("embedded", "queue-depth-embedded"), "HorizontalPodAutoscaler")
    [_, metric] = autoscaler["spec"]["metrics"]
    # Turns beyond the limit do not wait.
    assert int(metric["pods"]["target"]["averageValue"]) < DEFAULTS.resilience.limit.min_turns


# -- Settings --------------------------------------------------------------------------------------------------------


def _front_environments() -> list[dict[str, str]]:
    compose = {name: str(value) for name, value in _compose()["services"]["front"]["environment"].items()}
    compose = {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for name, value in compose.items()}
    fronts = [_container(_one(_render(*variant), "Deployment", "rewriter")) for variant in VARIANTS]
    return [compose, *map(_environment, fronts)]


@pytest.mark.parametrize("path", [*FILES, DOCUMENT], ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_only_settings_that_exist_are_named(path: Path) -> None:
    named = set(re.findall(r"\bREWRITER_[A-Z0-9_]+\b", path.read_text(encoding="utf-8")))
    assert named <= SETTINGS


@pytest.mark.parametrize("index", range(1 + len(VARIANTS)))
def test_the_front_accepts_its_environment(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("REWRITER_")]:
        monkeypatch.delenv(name)
    for name, value in _front_environments()[index].items():
        if name.startswith("REWRITER_"):
            monkeypatch.setenv(name, value)
    settings = load({}).settings
    assert (settings.port, settings.metrics.port) == (DEFAULTS.port, DEFAULTS.metrics.port) == (8600, 8601)
    assert settings.host == settings.metrics.host == "0.0.0.0"
    assert settings.allow_insecure != settings.tls.enabled


# -- Images ----------------------------------------------------------------------------------------------------------


def _instructions(name: str) -> list[tuple[str, str]]:
    lines = [line for line in (DEPLOY / name).read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    parts = (line.strip().partition(" ") for line in joined if line)
    return [(word, rest.strip()) for word, _, rest in parts]


def _of(name: str, word: str) -> list[str]:
    return [rest for found, rest in _instructions(name) if found == word]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_have_a_pinned_base_and_no_root(name: str) -> None:
    defaults = dict(argument.split("=", 1) for argument in _of(name, "ARG"))
    for base in _of(name, "FROM"):
        image = re.sub(r"\$\{(\w+)\}", lambda found: defaults[found[1]], base).split()[0]
        assert re.search(r":\d+\.\d+\.\d+[\w.-]*$", image), image
    assert _of(name, "USER")[-1] == "10001:10001"
    after = [word for word, _ in _instructions(name)]
    assert "RUN" not in after[len(after) - after[::-1].index("USER") :]
    assert _of(name, "HEALTHCHECK")
    assert _of(name, "ENTRYPOINT")[0].startswith("[")
    assert "libjemalloc.so.2" in " ".join(_of(name, "ENV"))
    assert "libjemalloc2" in " ".join(_of(name, "RUN"))


def test_the_front_is_made_of_files_that_exist_and_that_the_build_may_see() -> None:
    ignored = [
        line for line in (DEPLOY / "front.Dockerfile.dockerignore").read_text().splitlines() if line and line[0] != "#"
    ]
    copied = [rest for rest in _of("front.Dockerfile", "COPY") if not rest.startswith("--from")]
    sources = [source.rstrip("/") for rest in copied for source in rest.split()[:-1]]
    assert {"rewriter", "serving", "constraints.txt", "setup.cfg"} <= set(sources)
    for source in sources:
        assert (REPOSITORY / source).exists()
        assert not _is_ignored(source, ignored), source
    for secret in (".git", "build", ".venv", "tests", "serving/deploy/compose.yaml", "rewriter/__pycache__"):
        assert _is_ignored(secret, ignored), secret


def _is_ignored(path: str, patterns: list[str]) -> bool:
    found = False
    parts = path.split("/")
    prefixes = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    for pattern in patterns:
        plain = pattern.removeprefix("!").replace("**/", "*")
        if any(fnmatch(prefix, plain) for prefix in prefixes):
            found = not pattern.startswith("!")
    return found


def test_the_front_is_stopped_by_the_signal_that_drains_it_and_tf_serving_at_once() -> None:
    assert _of("front.Dockerfile", "STOPSIGNAL") == ["SIGTERM"]
    assert _of("tf_serving.Dockerfile", "STOPSIGNAL") == ["SIGKILL"]
    exposed = " ".join(_of("front.Dockerfile", "EXPOSE")).split()
    assert list(map(int, exposed)) == [DEFAULTS.port, DEFAULTS.metrics.port]


def test_images_have_the_versions_of_what_they_run() -> None:
    texts = {path: path.read_text() for path in [*FILES, DOCUMENT]}
    [tensorflow] = re.findall(r"^tensorflow-serving-api==(.+)$", (REPOSITORY / "constraints.txt").read_text(), re.M)
    for path, text in texts.items():
        for found in re.findall(r"(?:tensorflow/serving|rewriter-tf-serving):([\w.]+)", text):
            assert found == tensorflow, path
        for found in re.findall(r"rewriter-front:(\d[\d.]*\d)", text):
            assert found == __version__, path
        assert ":latest" not in text, path


def test_a_front_of_tf_serving_is_installed_without_tensorflow() -> None:
    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "serving/deploy/requirements.py", *arguments]
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)

    extras = dict(argument.split("=", 1) for argument in _of("front.Dockerfile", "ARG"))["EXTRAS"]
    everything, thin = run(extras).stdout.splitlines(), run(extras, "tensorflow").stdout.splitlines()
    assert {re.split("[>=]", line)[0] for line in set(everything) - set(thin)} == {"tensorflow"}
    assert {"grpcio", "jieba", "pydantic"} <= {re.split("[>=]", line)[0] for line in thin}
    assert "found 'train2'" in run("train2").stderr
    assert "found ['torch']" in run("serve", "torch").stderr


# -- The probe of the image ------------------------------------------------------------------------------------------


@contextmanager
def _server(status: int, credentials: grpc.ServerCredentials | None = None) -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(2))
    servicer = health.HealthServicer()
    servicer.set("", status)
    servicer.set("other", health_pb2.HealthCheckResponse.NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    address = "127.0.0.1:0"
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    server.start()
    yield port
    server.stop(None).wait()


def _probe(port: int, *arguments: str, **environment: str) -> int:
    variables = {"PATH": os.environ["PATH"], "REWRITER_HOST": "0.0.0.0", "REWRITER_PORT": str(port), **environment}
    command = [sys.executable, str(DEPLOY / "healthcheck.py"), *arguments]
    return subprocess.run(command, env=variables, capture_output=True, timeout=60).returncode


def test_the_probe_tells_a_serving_front_from_others() -> None:
    with _server(health_pb2.HealthCheckResponse.SERVING) as port:
        assert _probe(port) == 0
        assert _probe(port, "other") == 1
    assert _probe(port) == 1
    with _server(health_pb2.HealthCheckResponse.NOT_SERVING) as port:
        assert _probe(port) == 1


@pytest.mark.parametrize("names", [["rewriter.rewriter.svc.cluster.local"], ["*.example.org", "10.0.0.7"]])
def test_the_probe_trusts_the_certificate_of_its_own_server(names: list[str], tmp_path: Path) -> None:
    authority = trustme.CA()
    own, client = authority.issue_cert(*names), authority.issue_cert("probe")
    certificate, key, client_certificate, client_key = (tmp_path / name for name in ("c", "k", "cc", "ck"))
    certificate.write_bytes(b"".join(pem.bytes() for pem in own.cert_chain_pems))
    client_certificate.write_bytes(b"".join(pem.bytes() for pem in client.cert_chain_pems))
    client_key.write_bytes(client.private_key_pem.bytes())
    pair = [(own.private_key_pem.bytes(), certificate.read_bytes())]
    serving = health_pb2.HealthCheckResponse.SERVING
    environment = {"REWRITER_TLS__CERTIFICATE_FILE": str(certificate)}
    with _server(serving, grpc.ssl_server_credentials(pair)) as port:
        assert _probe(port, **environment) == 0
        assert _probe(port) == 1
    mutual = grpc.ssl_server_credentials(pair, authority.cert_pem.bytes(), require_client_auth=True)
    with _server(serving, mutual) as port:
        assert _probe(port, **environment) == 1
        assert _probe(port, "", str(client_certificate), str(client_key), **environment) == 0


# -- Compose ---------------------------------------------------------------------------------------------------------


@cache
def _compose() -> Any:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def test_compose_knows_every_field() -> None:
    schema = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text())
    jsonschema.validators.validator_for(schema)(schema).validate(_compose())


def test_compose_builds_and_mounts_what_exists_and_lets_nobody_in() -> None:
    for name, service in _compose()["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        image = service["image"]
        assert re.search(r":v?\d+\.\d+\.\d+(-\w+)?$", image), image
        if build := service.get("build"):
            assert (DEPLOY / build["context"]).resolve() == REPOSITORY
            declared = {argument.split("=")[0] for argument in _of(Path(build["dockerfile"]).name, "ARG")}
            assert set(build["args"]) <= declared
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            known = source.startswith("${MODELS") or source in _compose()["volumes"]
            assert known or (DEPLOY / source).exists(), source


def test_compose_drains_the_front_and_gives_a_profile_its_machine() -> None:
    services = _compose()["services"]
    assert int(services["front"]["stop_grace_period"].rstrip("s")) >= _stop_seconds() + 5
    assert services["tf-serving"]["profiles"] == ["cpu"]
    assert "deploy" not in services["tf-serving"]
    gpu = services["tf-serving-gpu"]
    assert gpu["profiles"] == ["gpu"]
    assert gpu["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]
    assert gpu["build"]["args"]["TF_SERVING_IMAGE"].endswith("-gpu")
    # Whichever it is, the front and Prometheus know it by one name.
    assert gpu["networks"]["default"]["aliases"] == ["tf-serving"]


# -- Prometheus and Grafana ------------------------------------------------------------------------------------------

# TF Serving's, as its exporter (tensorflow_serving/util/prometheus_exporter.cc) writes them.
_TF_SERVING_METRICS = {
    ":tensorflow:serving:request_count": {"model_name", "status"},
    ":tensorflow:serving:request_latency_bucket": {"model_name", "API", "entrypoint", "le"},
    ":tensorflow:serving:batching_session:processed_batch_size_sum": set(),
    ":tensorflow:serving:batching_session:processed_batch_size_count": set(),
    ":tensorflow:serving:batching_session:queuing_latency_bucket": {"le"},
    ":tensorflow:cc:saved_model:load_attempt_count": {"model_path", "status"},
}
_TARGET_LABELS = {"job", "instance", "namespace", "pod"}
_LABEL_VALUES = {
    "reason": set(PassthroughReason.__members__),
    "outcome": {*Outcome.__members__, "ERROR"},
    "method": {method.name for method in pb.DESCRIPTOR.services_by_name["RewriterService"].methods},
    "code": {code.name for code in grpc.StatusCode},
    "job": {"rewriter", "tf-serving"},
    "why": {"open", "limit", "time"},
}


@cache
def _metrics() -> dict[str, set[str]]:
    """Labels by the names that Prometheus sees: those of a fresh server, and those that are made with a first value."""
    found = {**_TF_SERVING_METRICS, "up": set()}
    registry = Metrics().registry
    ResilienceMetrics(registry, ("an address",))
    with TemporaryDirectory() as folder:
        for each in (registry, WorkerMetrics(Path(folder)).registry):
            found |= _names_and_labels(each)
    code = "".join(path.read_text() for path in sorted((REPOSITORY / "serving").rglob("*.py")))
    found |= {f"rewriter_{name}": set() for name in re.findall(r'set_later\(\s*"(\w+)"', code)}
    return found


def _names_and_labels(registry: CollectorRegistry) -> dict[str, set[str]]:
    found = {}
    collectors = [each for each in registry._collector_to_names if hasattr(each, "_labelnames")]
    labels = {collector._name: set(collector._labelnames) for collector in collectors}
    for family in registry.collect():
        for suffix in {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",)):
            le = {"le"} if suffix == "_bucket" else set()
            found[family.name + suffix] = labels.get(family.name, set()) | le
    return found


def _dashboard() -> Any:
    return json.loads((MONITORING / "dashboards/rewriter.json").read_text())


def _alerts() -> list[Any]:
    [document] = _read(MONITORING / "alerts.yaml")
    return [rule for group in document["groups"] for rule in group["rules"]]


def _adapter_queries() -> list[str]:
    rules = [_read(path)[0]["rules"] for path in KUBERNETES.rglob("prometheus-adapter.yaml")]
    return [rule["seriesQuery"] for each in rules for kind in each.values() for rule in kind]


def _queries() -> list[str]:
    panels = [target["expr"] for panel in _dashboard()["panels"] for target in panel.get("targets", [])]
    panels = [expression.replace("$__rate_interval", "5m") for expression in panels]
    return [*panels, *(rule["expr"] for rule in _alerts()), *_adapter_queries()]


def _parts(expression: str) -> list[Any]:
    """Raises ValueError unless it is PromQL."""
    found: list[Any] = []
    promql_parser.walk(promql_parser.parse(expression), found.append)
    return found


@pytest.mark.parametrize("expression", _queries())
def test_queries_name_metrics_and_labels_that_the_servers_export(expression: str) -> None:
    named = [part for part in _parts(expression) if isinstance(part, promql_parser.VectorSelector)]
    assert named
    labels = set(_TARGET_LABELS)
    for selector in named:
        matchers = {matcher.name: matcher.value for matcher in selector.matchers.matchers}
        name = selector.name or matchers.pop("__name__")
        assert name in _metrics(), name
        labels |= _metrics()[name]
        assert matchers.keys() <= _metrics()[name] | _TARGET_LABELS, name
        for label in matchers.keys() & _LABEL_VALUES.keys():
            assert set(matchers[label].split("|")) - {""} <= _LABEL_VALUES[label]
    for part in _parts(expression):
        if isinstance(part, promql_parser.AggregateExpr) and part.modifier:
            assert set(part.modifier.labels) <= labels


def test_every_metric_of_ours_is_on_the_dashboard() -> None:
    shown = json.dumps(_dashboard())
    families = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in _metrics() if name.startswith("rewriter_")}
    assert {family for family in families if family not in shown} == set()


def test_autoscalers_follow_metrics_that_the_servers_export() -> None:
    adapted = {rule for query in _adapter_queries() for rule in re.findall(r"^\w+", query)}
    for variant in VARIANTS:
        for autoscaler in _of_kind(_render(*variant), "HorizontalPodAutoscaler"):
            for metric in autoscaler["spec"]["metrics"]:
                if metric["type"] != "Resource":
                    name = metric[metric["type"].lower()]["metric"]["name"]
                    assert name in adapted & _metrics().keys()


def test_alerts_have_a_severity_a_summary_and_a_runbook() -> None:
    headings = {
        re.sub(r"[^\w -]", "", line.lstrip("# ")).strip().lower().replace(" ", "-")
        for line in (REPOSITORY / "docs/operations.md").read_text().splitlines()
        if line.startswith("#")
    }
    for rule in _alerts():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]
        page, anchor = rule["annotations"]["runbook"].split("#")
        assert page == "docs/operations.md"
        assert anchor in headings
        # A template may name only labels that are left in the result.
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert named <= _labels_left(rule["expr"]), rule["alert"]


def _labels_left(expression: str) -> set[str]:
    tops = [part for part in _parts(expression) if isinstance(part, promql_parser.AggregateExpr)]
    if tops:
        return set(tops[0].modifier.labels) if tops[0].modifier else set()
    [selector] = [part for part in _parts(expression) if isinstance(part, promql_parser.VectorSelector)]
    return _metrics()[selector.name or selector.matchers.matchers[0].value] | _TARGET_LABELS


def test_calls_are_slow_from_half_of_what_clients_wait() -> None:
    [slow] = [rule["expr"] for rule in _alerts() if rule["alert"] == "RewriterSlow"]
    assert float(slow.split(">")[-1]) == DEFAULT_TIMEOUT_SECONDS / 2


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    [document] = _read(MONITORING / "alerts.test.yaml")
    cases = [case for test in document["tests"] for case in test["alert_rule_test"]]
    for fires in (True, False):
        named = {case["alertname"] for case in cases if ("exp_alerts" in case) == fires}
        assert named == {rule["alert"] for rule in _alerts()}


@pytest.mark.skipif(not shutil.which("promtool"), reason="expected promtool on the PATH, found none")
@pytest.mark.parametrize("command", [("check", "config", "prometheus.yaml"), ("test", "rules", "alerts.test.yaml")])
def test_promtool_agrees(command: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *command], cwd=MONITORING, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def _jobs(name: str) -> list[Any]:
    return list(_read(MONITORING / f"{name}.yaml")[0]["scrape_configs"])


def test_prometheus_finds_the_ports_of_the_services() -> None:
    compose = {job["job_name"]: job["dns_sd_configs"][0] for job in _jobs("prometheus")}
    assert (compose["rewriter"]["names"], compose["rewriter"]["port"]) == (["front"], DEFAULTS.metrics.port)
    assert (compose["tf-serving"]["names"], compose["tf-serving"]["port"]) == (["tf-serving"], 8501)
    for job in _jobs("prometheus.kubernetes"):
        name, port = job["relabel_configs"][0]["regex"].split(";")
        assert name == job["job_name"]
        [deployment] = [d for d in _of_kind(_render("gpu"), *_WORKLOADS) if d["metadata"]["name"] == name]
        assert _labels(deployment)["app.kubernetes.io/name"] == name
        assert port in {port["name"] for port in _container(deployment)["ports"]}


def test_the_dashboard_is_one_that_grafana_draws() -> None:
    dashboard = _dashboard()
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    [variable] = dashboard["templating"]["list"]
    assert variable["type"] == "datasource"
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${" + variable["name"] + "}"
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    places = sorted((panel["gridPos"]["y"], panel["gridPos"]["x"], panel["gridPos"]["w"]) for panel in panels)
    for (row, left, width), (next_row, next_left, _) in pairwise(places):
        assert row != next_row or left + width <= next_left


def test_grafana_is_provisioned_from_where_compose_mounts_it() -> None:
    mounts = dict(volume.split(":")[:2] for volume in _compose()["services"]["grafana"]["volumes"])
    [provider] = _read(MONITORING / "grafana/dashboards.yaml")[0]["providers"]
    assert mounts["./monitoring/dashboards"] == provider["options"]["path"]
    [source] = _read(MONITORING / "grafana/datasources.yaml")[0]["datasources"]
    assert source["url"] == "http://prometheus:9090"


# -- The document ----------------------------------------------------------------------------------------------------


def test_the_document_names_files_that_exist() -> None:
    text = DOCUMENT.read_text()
    for path in re.findall(r"(?<![\w/-])(?:serving|docs|tests|benchmarks)/[\w./-]*\w", text):
        assert (REPOSITORY / path).exists(), path
    for path in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert (DOCUMENT.parent / path).exists(), path
    rest = set(re.findall(r"components/([\w-]+)", text))
    assert rest <= {path.name for path in (KUBERNETES / "components").iterdir()}
