"""Engines that Ray places: they give the same tokens as one engine in this process, and leave no processes or files."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest
import torch
from small_steps import context, warm_started

from models.base.errors import UserError
from models.base.placement import PlacementSettings
from models.engines.canary import canary_gap
from models.engines.engine import EngineSettings, Sampling, requests_of
from models.engines.fleet import Fleet
from models.engines.hosted import Order
from models.engines.open_engine import open_engine
from models.policies.folder import save_model_folder
from models.policies.weights import merged_weights
from models.recipes.load import load_recipe
from tasks.compute import shared_engine
from tasks.steps import fine_tune
from tests.support.tiny_models import NO_VLLM, PROMPTS, SEQUENCES, contents, tiny_policy, word_tokenizer

ray = pytest.importorskip("ray", reason="the extra cluster is not installed")
from tasks.compute.cluster import Cluster, connected, placed_fleet  # noqa: E402 - imports ray

ROOT = Path(__file__).resolve().parents[2]
TWO = PlacementSettings(engines=2)
PLAIN = EngineSettings(name="transformers", max_sequences=4)
SAMPLING = Sampling(max_tokens=12, samples=4, temperature=1.5)


def saved(folder: Path) -> Path:
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), folder)
    return folder


def order(folder: Path, settings: EngineSettings = PLAIN) -> Order:
    return Order(folder, settings, 64, 1, torch.float32, False)


@pytest.mark.thorough
def test_a_run_without_placement_imports_no_ray(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        import flows.command_line, flows.train, tasks.steps.fine_tune
        from models.engines.engine import EngineSettings
        from models.base.placement import PlacementSettings
        from tasks.compute.shared_engine import borrowed_engine, shared_engine
        with shared_engine(PlacementSettings()):
            with borrowed_engine(Path(sys.argv[1]), EngineSettings(name="transformers"), longest=64, end=1) as engine:
                assert engine.score([[3]], [[4]])
        assert not [name for name in sys.modules if name.partition(".")[0] == "ray"]
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(saved(tmp_path / "policy"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_machine_with_too_few_gpus_is_one_line_and_one_with_none_is_not_asked_for_any() -> None:
    with pytest.raises(UserError, match=r"^placement: 3 engines of 1 GPU each, but this machine has 2; "):
        Cluster(None, 2.0).gpus_of_each(PlacementSettings(engines=3))
    assert Cluster(None, 2.0).gpus_of_each(PlacementSettings(engines=3, engine_gpus=0.5)) == 0.5
    assert Cluster(None, 0.0).gpus_of_each(PlacementSettings(engines=3)) == 0.0
    assert Cluster("10.0.0.1:6379", 0.0).gpus_of_each(PlacementSettings(engines=3)) == 1.0  # the cluster may add GPUs


@pytest.mark.parametrize(
    ("cluster", "engine_gpus", "of_each"),
    [
        (Cluster(None, 2.0), 1, {"num_gpus": 1.0, "num_cpus": 0.0}),
        (Cluster(None, 0.0), 1, {"num_gpus": 0.0, "num_cpus": 0.0}),
        (Cluster("10.0.0.1:6379", 4.0), 0, {"num_gpus": 1.0, "num_cpus": 0.0}),
        (
            Cluster("10.0.0.1:6379", 0.0),
            1,
            {"num_gpus": 1.0, "num_cpus": 0.0},
        ),  # scaled to zero: it adds a GPU on request
        (Cluster("10.0.0.1:6379", 0.0), 0, {"num_gpus": 0.0, "num_cpus": 1.0}),
    ],
)
def test_a_learner_asks_for_a_gpu_wherever_there_is_or_may_come_one(
    cluster: Cluster, engine_gpus: float, of_each: dict[str, float]
) -> None:
    assert cluster.of_each_learner(PlacementSettings(learners=2, engine_gpus=engine_gpus)) == of_each


@pytest.mark.thorough
def test_placed_engines_say_what_one_says_here_to_the_last_bit_whatever_dies_and_nothing_of_them_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    environment, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    folder = saved(tmp_path / "policy")
    alone = open_engine(folder, PLAIN, longest=64, end=1, seed=0)
    with connected(None) as cluster:
        fleet = placed_fleet(cluster, TWO, order(folder))
        placed = [member.engine.process for member in fleet.members()]
        assert len({os.getpid(), *placed}) == 3
        started = [process for process in psutil.Process().children(recursive=True) if process.pid not in before]
        assert {*placed} <= {process.pid for process in started}
        listening = [
            connection.laddr.ip
            for process in [psutil.Process(), *started]
            for connection in process.net_connections()
            if connection.status == psutil.CONN_LISTEN
        ]
        assert listening and {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
        assert contents(fleet.generate(PROMPTS, SAMPLING, 5)) == contents(alone.generate(PROMPTS, SAMPLING, 5))
        for seed in (1, 2):
            policy = tiny_policy(torch.float32, seed=seed)
            for engine in (fleet, alone):
                engine.load(merged_weights(policy))
            assert all(canary_gap(member, policy, SEQUENCES, None) < 1e-5 for member in fleet.members())
            assert contents(fleet.generate(PROMPTS, SAMPLING, 5)) == contents(alone.generate(PROMPTS, SAMPLING, 5))
        asks = dict(enumerate(requests_of(PROMPTS, SAMPLING, 5)))
        served = fleet.members()[0].serve(asks, SAMPLING, 5)
        while len(served) < len(asks):
            served |= fleet.members()[0].serve({}, SAMPLING, 5)
        expected = alone.complete(list(asks.values()), SAMPLING)
        assert [served[number].tokens for number in asks] == [made.tokens for made in expected]
        assert all(made.versions == ((0, 2),) for made in served.values())
        os.kill(placed[1], signal.SIGKILL)
        with pytest.warns(UserWarning, match=r"engine: it broke in generate \(ActorDiedError"):
            made = fleet.generate(PROMPTS, SAMPLING, 5)
        assert contents(made) == contents(alone.generate(PROMPTS, SAMPLING, 5))
        now = [member.engine.process for member in fleet.members()]
        assert now[0] == placed[0] and now[1] not in placed
        with pytest.raises(UserError, match=r"^prompt 1 holds token id 99"):
            fleet.generate([[3], [99]], SAMPLING, 0)
        with pytest.raises(UserError, match=r"broken: .*cannot be loaded"):
            placed_fleet(cluster, TWO, order(broken(tmp_path)))
        left = [process for process in psutil.Process().children(recursive=True) if process.pid not in before]
        fleet.close()
    alone.close()
    assert not [process for process in {*started, *left} if process.is_running()]
    assert dict(os.environ) == environment and signal.getsignal(signal.SIGTERM) is handler
    assert not list(home.iterdir()), "Ray's token would lie there"


def broken(folder: Path) -> Path:
    weights = saved(folder / "broken") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    return folder / "broken"


@pytest.mark.thorough
@NO_VLLM
def test_placed_vllm_engines_give_the_tokens_of_one_and_run_the_policy_that_is_handed_over(tmp_path: Path) -> None:
    settings = EngineSettings(name="vllm", max_sequences=16)
    folder = saved(tmp_path / "policy")
    with connected(None) as cluster:
        tokens = {}
        for count in (1, 2):
            fleet = placed_fleet(cluster, PlacementSettings(engines=count), order(folder, settings))
            policy = tiny_policy(torch.float32, seed=3)
            fleet.load(merged_weights(policy))
            assert all(canary_gap(member, policy, SEQUENCES, None) < 1e-5 for member in fleet.members())
            groups = fleet.generate(PROMPTS, SAMPLING, 5)
            tokens[count] = [[made.tokens for made in group] for group in groups]
            fleet.close()
    assert tokens[1] == tokens[2]


@pytest.mark.thorough
@NO_VLLM
def test_an_engine_cut_over_two_processes_runs_the_policy_that_is_handed_over_and_leaves_neither(
    tmp_path: Path,
) -> None:
    settings = EngineSettings(name="vllm", max_sequences=16)
    asked = order(saved(tmp_path / "policy"), settings)
    policy = tiny_policy(torch.float32, seed=3)
    with connected(None) as cluster:
        tokens = {}
        for ways in (1, 2):
            fleet = placed_fleet(cluster, PlacementSettings(engines=1, engine_gpus=ways), asked)
            fleet.load(merged_weights(policy))
            (member,) = fleet.members()
            assert canary_gap(member, policy, SEQUENCES, None) < 1e-5
            groups = fleet.generate(PROMPTS, SAMPLING, 5)
            tokens[ways] = [[made.tokens for made in group] for group in groups]
            processes = psutil.Process(member.engine.process).children(recursive=True)
            fleet.close()
        assert len(processes) >= 2 and not psutil.wait_procs(processes, 60)[1]
    assert tokens[1] == tokens[2]


def test_an_engine_in_one_piece_is_not_cut(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"placement\.engine_gpus is 2, but only vLLM cuts a model over several"):
        placed_fleet(Cluster(None, 2.0), PlacementSettings(engines=1, engine_gpus=2), order(saved(tmp_path / "policy")))
    with pytest.raises(UserError, match=r"placement.*engine_gpus is 1\.5: a share of one GPU, or a whole number"):
        load_recipe("arithmetic", ["placement.engine_gpus=1.5"])


# ---------------------------------------- a training

RECIPE = """
reward_model: null
rollouts: {name: sample, prompts: 4, group_size: 4, max_tokens: 5}
select: {name: all}
objective: {name: grpo, entropy_bonus: 0.1}
engine: {name: transformers, max_sequences: 8}
policy: {precision: float32, size: {positions: 64}}
schedule: {rounds: 4, checkpoint_every: 1, samples_every: 1, optimiser: {learning_rate: 0.03}}
"""


@pytest.mark.thorough
def test_a_training_on_placed_engines_ends_with_the_weights_of_one_in_one_process_also_when_an_engine_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    # outside of a flow, Prefect provides neither a logger nor the slot on the GPU
    monkeypatch.setattr(fine_tune, "get_run_logger", lambda: logging.getLogger("steps"))
    monkeypatch.setattr(shared_engine, "gpu_slot", nullcontext)
    steps = warm_started(tmp_path)
    fleets = []
    placed = shared_engine._Shared.fleet

    def noted(*given, **named):
        fleets.append(placed(*given, **named))
        return fleets[-1]

    monkeypatch.setattr(shared_engine._Shared, "fleet", noted)

    def trained(key: str, placement: PlacementSettings) -> str:
        sections = fine_tune.FineTuneSections(load_recipe("tiny.yaml", []))
        handed = context(steps["home"], "fine_tune", key * 64, steps["run"], sections)
        with shared_engine.shared_engine(placement):
            return fine_tune.fine_tune.fn(handed, steps["validated"], steps["warmed"], steps["rewarded"], {}).digest

    alone = trained("a", PlacementSettings())
    assert not fleets
    assert trained("b", TWO) == alone and len(fleets) == 1

    whole, rounds = Fleet.complete, []

    def each(self, asks, drawing):
        rounds.append(self)
        if len(rounds) == 3:  # kill the engine while it generates
            self.threads[1].submit(lambda: None).result()
            engine = self.members()[1].engine
            asked = self.threads[0].submit(whole_later, engine.process)
            made = whole(self, asks, drawing)
            asked.result()
            return made
        return whole(self, asks, drawing)

    def whole_later(process: int) -> None:
        os.kill(process, signal.SIGKILL)

    monkeypatch.setattr(Fleet, "complete", each)
    with pytest.warns(UserWarning, match=r"engine: it broke in generate \(ActorDiedError"):
        assert trained("c", TWO) == alone
    assert len(rounds) == 4


# ---------------------------------------- the end of a run

DRIVER = """
    import sys, torch
    from pathlib import Path
    import psutil
    from models.engines.engine import EngineSettings, Sampling
    from models.engines.hosted import Order
    from models.base.placement import PlacementSettings
    from tasks.compute.cluster import connected, placed_fleet
    settings = EngineSettings(name="transformers")
    with connected(None) as cluster:
        fleet = placed_fleet(
            cluster, PlacementSettings(engines=2), Order(Path(sys.argv[1]), settings, 4096, 1, torch.float32, False)
        )
        try:
            print(*[process.pid for process in psutil.Process().children(recursive=True)], flush=True)
            while True:
                fleet.generate([[3, 4], [5, 6], [7], [8]], Sampling(max_tokens=4000, samples=64), 0)
        finally:
            fleet.close()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["^C", "KILL"])
def test_whatever_ends_a_run_leaves_none_of_its_processes(tmp_path: Path, number: signal.Signals) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DRIVER), str(saved(tmp_path / "policy"))],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert driver.stdout is not None
        processes = [psutil.Process(int(pid)) for pid in driver.stdout.readline().split()]
        assert len(processes) > 5, driver.communicate()[1]
        if number == signal.SIGINT:
            os.killpg(driver.pid, number)  # like a terminal: the whole process group in the foreground
        else:
            driver.kill()
        driver.wait(60)
        # Ray's two agents check only at intervals whether their parent process still exists
        assert not psutil.wait_procs(processes, 60 if number == signal.SIGINT else 240)[1]
        assert number == signal.SIGKILL or "KeyboardInterrupt" in driver.communicate()[1]
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)


HEAD = """
    import sys, ray
    ray.init(address="local", include_dashboard=False, num_cpus=2, num_gpus=0, _temp_dir=sys.argv[1])
    print(ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.readline()
    print(len([actor for actor in ray._private.state.actors().values() if actor["State"] != "DEAD"]), flush=True)
"""
JOINING = """
    import sys, torch
    from pathlib import Path
    from models.engines.engine import EngineSettings, Sampling
    from models.engines.hosted import Order
    from models.base.placement import PlacementSettings
    from tasks.compute.cluster import connected, placed_fleet
    with connected(sys.argv[2]) as cluster:
        order = Order(Path(sys.argv[1]), EngineSettings(name="transformers"), 64, 1, torch.float32, False)
        fleet = placed_fleet(cluster, PlacementSettings(engines=2, engine_gpus=0), order)
        print([made.tokens for group in fleet.generate([[3, 4], [5]], Sampling(max_tokens=8, samples=2), 0)
               for made in group])
"""


@pytest.mark.thorough
def test_a_cluster_that_is_joined_gives_the_same_tokens_and_is_left_without_an_actor(tmp_path: Path) -> None:
    folder = saved(tmp_path / "policy")
    token = "a" * 64

    def start(code: str, *given: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), *given],
            cwd=ROOT,
            env={**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    files = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # for sockets, whose paths must be short
    head = start(HEAD, files)
    try:
        assert head.stdout is not None
        address = head.stdout.readline().strip()
        said, errors = start(JOINING, str(folder), address).communicate(timeout=240)
        engine = open_engine(folder, EngineSettings(name="transformers"), longest=64, end=1, seed=0)
        groups = engine.generate([[3, 4], [5]], Sampling(max_tokens=8, samples=2), 0)
        assert said.strip() == str([made.tokens for group in groups for made in group]), errors
        assert head.communicate("\n", timeout=60)[0].strip() == "0"
    finally:
        head.kill()
        head.communicate()
        shutil.rmtree(files)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1:1", r"nothing answers there \("),
        ("127.0.0.1:99999", r"nothing answers"),
        ("ray://head", "HOST:PORT"),
    ],
)
def test_an_address_where_no_cluster_is_is_one_line_at_once(address: str, why: str) -> None:
    with pytest.raises(UserError, match=rf"^--cluster {address}: .*{why}"), connected(address):
        pass
