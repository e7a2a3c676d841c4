import json
import os
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from tasks.launch.base import LaunchError, LaunchRequest, LostError
from tasks.launch.kubernetes import KubernetesLauncher
from tests.tasks.launch.kubernetes_standin import NOW, Refusal, StandInCluster, command
from tests.tasks.launch.launch_cases import fixed_request, full_kubernetes, wait_for_file, writing_its_rank
from toolformer_core.errors import UsageError

kubernetes = pytest.importorskip("kubernetes", reason="needs the extra `kubernetes`")


@pytest.fixture
def cluster(tmp_path):
    with StandInCluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def request_(tmp_path):
    folder = tmp_path / "finetunes" / "job-1"
    folder.mkdir(parents=True)
    return LaunchRequest("job-1", folder, 2)


@pytest.fixture
def launcher(cluster, tmp_path):
    own = {"kubeconfig": str(cluster.kubeconfig), "environment": {"NOTE": "$(HOME) and $$(X)"}}
    return KubernetesLauncher("trainer:1", "data", local_root=str(tmp_path), namespace="nlp", nodes=2, **own)


def ended(reason: str, code: int, at: str = NOW) -> dict[str, object]:
    return {"terminated": {"reason": reason, "exitCode": code, "finishedAt": at, "startedAt": NOW}}


def test_a_jobs_life(cluster, launcher, request_):
    handle = launcher.submit(request_)
    job = json.loads(launcher.preview(request_))
    assert cluster.requests == [("POST", "/apis/batch/v1/namespaces/nlp/jobs", job)]

    assert launcher.state(handle) == ("pending", "no pod yet")
    reason = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: no GPU"}
    cluster.set_pod("job-1-0-x", "Pending", conditions=[reason])
    assert launcher.state(handle) == ("pending", "job-1-0-x: Unschedulable: 0/3 nodes: no GPU")
    cluster.set_pod("job-1-0-x", "Running", {"running": {"startedAt": NOW}})
    cluster.set_pod("job-1-1-y", "Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}})
    assert launcher.state(handle) == ("pending", "job-1-1-y: ImagePullBackOff: no such image")
    cluster.set_pod("job-1-1-y", "Running", {"running": {"startedAt": NOW}})
    assert launcher.state(handle) == ("running", "pods: 2")
    cluster.set_condition("SuccessCriteriaMet")
    cluster.set_condition("Complete")
    assert KubernetesLauncher("", "", kubeconfig=launcher.kubeconfig).state(handle) == ("succeeded", "Complete")
    cluster.objects.clear()  # its time to live is over
    assert launcher.state(handle) == ("cancelled", "deleted")


def test_the_first_pod_that_failed_tells_why(cluster, launcher, request_):
    handle = launcher.submit(request_)
    cluster.set_pod("job-1-0-x", "Failed", ended("Error", 1, "2026-01-02T03:04:09Z"))
    cluster.set_pod("job-1-1-y", "Failed", ended("OOMKilled", 137, "2026-01-02T03:04:08Z"))
    cluster.set_condition("Failed", reason="BackoffLimitExceeded", message="Job has reached the limit")
    assert launcher.state(handle) == ("failed", "job-1-1-y: OOMKilled, exit code 137")  # its log is gone
    cluster.logs["job-1-1-y"] = "step 3\ncaf\u00e9: out of memory\n\n"
    assert launcher.state(handle) == ("failed", "job-1-1-y: OOMKilled, exit code 137: caf\u00e9: out of memory")


def test_a_failure_without_a_failed_container(cluster, launcher, request_):
    handle = launcher.submit(request_)
    cluster.set_condition("Failed", reason="DeadlineExceeded")
    assert launcher.state(handle) == ("failed", "DeadlineExceeded")
    cluster.set_pod("job-1-0-x", "Failed", reason="Evicted")
    assert launcher.state(handle) == ("failed", "Evicted")


def test_cancel_takes_pods_along(cluster, launcher, request_):
    handle = launcher.submit(request_)
    cluster.set_pod("job-1-0-x", "Running", {"running": {"startedAt": NOW}})
    assert launcher.state(handle) == ("running", "pods: 1")
    launcher.cancel(handle)
    assert launcher.state(handle) == ("ending", "being deleted")  # a pod may still run
    cluster.collect()
    assert cluster.objects == {}
    assert launcher.state(handle)[0] == "cancelled"
    launcher.cancel(handle)


def test_another_job_of_the_same_name_is_not_ours(cluster, launcher, request_):
    handle = launcher.submit(request_)
    cluster.objects.clear()
    other = launcher.submit(request_)
    assert launcher.state(handle)[0] == "cancelled"
    launcher.cancel(handle)
    assert launcher.state(other)[0] == "pending"
    assert [method for method, _, _ in cluster.requests].count("DELETE") == 0


def test_refusals_leave_nothing_behind(cluster, launcher, request_):
    for refusal, told in (
        (Refusal(403, "Forbidden", "jobs.batch is forbidden:\nexceeded quota"), r"403 Forbidden: .*: exceeded quota"),
        (Refusal(404, "NotFound", 'namespaces "nlp" not found'), '404 Not Found: namespaces "nlp" not found'),
    ):
        cluster.refuse = {"jobs": refusal}
        with pytest.raises(LaunchError, match=f"refused the Job job-1: {told}"):
            launcher.submit(request_)
        assert cluster.objects == {}


def test_a_job_whose_answer_was_lost_is_taken_over(cluster, launcher, request_, tmp_path):
    handle = launcher.submit(request_)
    assert launcher.submit(request_) == handle
    elsewhere = tmp_path / "finetunes" / "elsewhere"
    elsewhere.mkdir()
    taken = r"there is a Job job-1, which .*`kubectl -n nlp get job job-1`"
    with pytest.raises(LaunchError, match=taken):
        launcher.submit(replace(request_, folder=elsewhere))
    launcher.cancel(handle)
    with pytest.raises(LaunchError, match=taken):  # it is being deleted
        launcher.submit(request_)
    cluster.collect()
    other = launcher.submit(request_)
    assert other != handle
    cluster.set_condition("Failed", reason="BadImage")
    assert launcher.submit(request_) == other  # it has failed meanwhile, and its end is told
    assert launcher.state(other) == ("failed", "BadImage")


@pytest.mark.parametrize("code", [500, 503, 401])
def test_what_a_cluster_says_of_itself_says_nothing_of_the_job(cluster, launcher, request_, code):
    handle = launcher.submit(request_)
    with pytest.MonkeyPatch.context() as ill:
        ill.setattr(cluster, "answer", lambda *asked: (_ for _ in ()).throw(Refusal(code, "Ill", "come back later")))
        with pytest.raises(LostError, match="come back later"):
            launcher.state(handle)
        with pytest.raises(LaunchError, match="come back later") as caught:
            launcher.submit(request_)
    assert isinstance(caught.value, LostError) == (code >= 500)
    assert launcher.state(handle)[0] == "pending"


def test_a_cluster_that_cannot_be_reached(cluster, launcher, request_, tmp_path, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, and not listened on
        config = json.loads(cluster.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{unused.getsockname()[1]}"
        (tmp_path / "other").write_text(json.dumps(config))
        with pytest.raises(LostError, match="cannot be reached, see `kubectl cluster-info`"):
            replace(launcher, kubeconfig=str(tmp_path / "other")).submit(request_)
    for wrong in ({"kubeconfig": str(tmp_path / "none")}, {"context": "elsewhere"}):
        with pytest.raises(UsageError, match="no cluster to launch on"):
            replace(launcher, **wrong).submit(request_)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.delitem(sys.modules, "kubernetes.client", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'toolformer-platform\[kubernetes\]'"):
        launcher.submit(request_)


def test_settings_that_make_no_sense(tmp_path):
    with pytest.raises(UsageError, match="not on the claim data: put the data folder under /data"):
        KubernetesLauncher("i", "data").preview(LaunchRequest("job", tmp_path))
    with pytest.raises(UsageError, match="name the container `image`"):
        KubernetesLauncher(claim="data").preview(fixed_request())


def test_manifests_are_what_the_client_knows():
    """Whatever the client's models do not know would be lost on the way through them."""
    job = json.loads(full_kubernetes().preview(fixed_request()))
    with kubernetes.client.ApiClient() as client:
        read = client.deserialize(json.dumps(job), "V1Job", "application/json")
        assert client.sanitize_for_serialization(read) == job


@pytest.mark.parametrize(("nodes", "fails"), [(2, 0), (1, 3)])
def test_what_the_pods_execute(launcher, request_, tmp_path, nodes, fails):
    """A job's pods run here, the first one at 127.0.0.1, with a free port for the one they agreed on."""
    program = tmp_path / "program.py"
    program.write_text(writing_its_rank("WORLD_SIZE", "NOTE"))
    variables = {**launcher.environment, "FAILS": str(fails)}
    request = replace(request_, processes=1, program=(str(program),))
    settings = {"mount_path": str(tmp_path), "nodes": nodes, "environment": variables}
    job = json.loads(replace(launcher, **settings).preview(request))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    (request.folder / "launch").mkdir()
    (request.folder / "launch/master-of-an-earlier-job").write_text("192.0.2.1")
    outputs, pods = [tmp_path / f"output-{index}" for index in range(nodes)], []
    for index, output in reversed(list(enumerate(outputs))):  # the first pod, for which the others wait, starts last
        words, own = command(job, index)
        words = [word.replace("29500", port) for word in words]
        how = {"env": {**os.environ, **own}, "cwd": request.folder, "stderr": subprocess.STDOUT}
        with output.open("wb") as file:
            pods.append(subprocess.Popen(words, stdout=file, **how))
    assert [pod.wait(60) for pod in pods] == [int(fails > 0)] * nodes
    for rank, log in list(enumerate(("log.txt", "log-1.txt")))[:nodes]:
        assert (request.folder / f"rank-{rank}").read_text() == f"{nodes} $(HOME) and $$(X)"
        told = outputs[rank].read_text()  # for `kubectl logs`
        assert f"rank {rank} of {nodes}\n" in told
        assert ("exitcode  : 3" in told) == (fails == 3)
        assert (request.folder / log).read_text() == told


def test_before_a_pod_ends_the_program_is_told_and_waited_for(launcher, request_):
    job = json.loads(launcher.preview(request_))
    hook = job["spec"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert hook[-1] == "/data/finetunes/job-1/stop"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        here = [word.replace("kill -0 1 ", f"kill -0 {program.pid} ") for word in hook[:-1]]
        assert here != hook[:-1]
        with subprocess.Popen([*here, str(request_.folder / "stop")]) as waiting:
            assert wait_for_file(request_.folder / "stop") == "pod is being ended\n"
            assert waiting.poll() is None
            program.communicate(b"\n")
            assert waiting.wait(30) == 0
