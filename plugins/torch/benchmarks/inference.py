"""vLLM's tensor parallelism with Farandole, with vLLM's own shared memory, and with Gloo, in turns in one engine.

    python plugins/torch/benchmarks/inference.py --hidden 512 --layers 4 --tokens 64 --rounds 5

On two hosts, with `--nodes 2 --address ADDRESS-OF-THE-FIRST --node 0` on the first and `--node 1` on the second; there
vLLM's own shared memory is left out.

Needs vLLM for CPUs and this plugin, installed. The model is small and its weights are random, so that nothing is
fetched. Prints, for each communicator, tokens per second (minimum, median, maximum of the rounds), the share of the
time that the first worker spends in collectives, microseconds of an all_reduce (tenth percentile and median), and
whether the greedy tokens are those with Gloo.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from typing import Any

OURS, VLLMS, GLOO = "Farandole", "vLLM's own", "Gloo"
ARMS = (OURS, VLLMS, GLOO)
CALLS = ("all_reduce", "all_gather", "gather")


def write_model(folder: str, hidden: int, layers: int) -> None:
    """A small Llama's configuration."""
    from transformers import LlamaConfig

    heads = hidden // 64
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        vocab_size=2048,
        max_position_embeddings=1024,
        architectures=["LlamaForCausalLM"],
        dtype="bfloat16",
    )
    config.save_pretrained(folder)


def make_arms(worker: Any, names: list[str]) -> None:
    """In a worker: communicators for the group of tensor parallelism, whose calls are timed."""
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
    from vllm.distributed.parallel_state import get_tp_group

    group = get_tp_group()
    made: dict[str, Any] = {OURS: group.device_communicator}
    arguments = group.cpu_group, group.device, group.device_group
    made[GLOO] = CpuCommunicator(*arguments, "gloo")  # only groups of other names share memory
    if VLLMS in names:
        made[VLLMS] = CpuCommunicator(*arguments, group.unique_name)
    for each in made.values():
        each.seconds = {name: [] for name in CALLS}
        for name in CALLS:
            setattr(each, name, timed(each.seconds[name], getattr(each, name)))
    worker.arms = made


def timed(seconds: list[float], call: Any) -> Any:
    def perform(*args: Any, **options: Any) -> Any:
        begun = time.perf_counter()
        result = call(*args, **options)
        seconds.append(time.perf_counter() - begun)
        return result

    return perform


def choose(worker: Any, arm: str) -> str:
    """In a worker: use one of them from now on. Returns its class."""
    from vllm.distributed.parallel_state import get_tp_group

    get_tp_group().device_communicator = worker.arms[arm]
    return type(worker.arms[arm]).__name__


def seconds_in(worker: Any, arm: str) -> dict[str, list[float]]:
    """In a worker: those of the calls since it was last asked."""
    found = {name: [*taken] for name, taken in worker.arms[arm].seconds.items()}
    for taken in worker.arms[arm].seconds.values():
        taken.clear()
    return found


def engine_of(options: argparse.Namespace, folder: str) -> Any:
    """The engine; on another node than the first, serves it until it ends, and then ends this process."""
    from vllm import LLM
    from vllm.engine.arg_utils import EngineArgs

    wanted: dict[str, Any] = {
        "tensor_parallel_size": options.workers,
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "max_model_len": 512,
        "distributed_executor_backend": "mp",
    }
    if options.nodes > 1:
        wanted |= {"nnodes": options.nodes, "node_rank": options.node, "master_addr": options.address}
    if not options.node:
        return LLM(folder, **wanted)
    from vllm.v1.executor.multiproc_executor import MultiprocExecutor

    executor = MultiprocExecutor(
        EngineArgs(folder, **wanted).create_engine_config(headless=True), monitor_workers=False
    )
    executor.start_worker_monitor(inline=True)
    raise SystemExit


def main() -> None:
    parser = argparse.ArgumentParser()
    numbers = {"hidden": 512, "layers": 4, "tokens": 64, "rounds": 5, "prompts": 4, "workers": 2, "nodes": 1, "node": 0}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--address", default="127.0.0.1")
    options = parser.parse_args()
    arms = [arm for arm in ARMS if options.nodes == 1 or arm != VLLMS]
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # functions of ours, to our own workers
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    local = range(options.workers // options.nodes)
    cores = "|".join(str(place + options.node * len(local)) for place in local)
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", cores)  # a core each, also where the nodes are a laboratory's
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from vllm import SamplingParams

    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, options.hidden, options.layers)
        engine = engine_of(options, folder)
    prompts = [{"prompt_token_ids": [(7 * i + 3 * j) % 2000 + 5 for j in range(16)]} for i in range(options.prompts)]
    wanted = SamplingParams(temperature=0, max_tokens=options.tokens, ignore_eos=True, detokenize=False)
    engine.collective_rpc(make_arms, args=(arms,))
    rates: dict[str, list[float]] = {arm: [] for arm in arms}
    shares: dict[str, list[float]] = {arm: [] for arm in arms}
    sums: dict[str, list[float]] = {arm: [] for arm in arms}
    tokens: dict[str, list[list[int]]] = {}
    for number in range(options.rounds + 1):  # the first warms up
        for arm in arms:
            assert engine.collective_rpc(choose, args=(arm,))[0] == (
                "Communicator" if arm == OURS else "CpuCommunicator"
            )
            begun = time.perf_counter()
            found = engine.generate(prompts, wanted, use_tqdm=False)
            seconds = time.perf_counter() - begun
            tokens[arm] = [[*each.outputs[0].token_ids] for each in found]
            taken = engine.collective_rpc(seconds_in, args=(arm,))[0]
            if number:
                rates[arm].append(options.prompts * options.tokens / seconds)
                shares[arm].append(sum(map(sum, taken.values())) / seconds)
                sums[arm] += [1e6 * each for each in taken["all_reduce"]]
    for arm in arms:
        low, middle, high = min(rates[arm]), statistics.median(rates[arm]), max(rates[arm])
        same = "equal" if tokens[arm] == tokens[GLOO] else "OTHER"
        print(
            f"{arm:<10} {low:8.1f} {middle:8.1f} {high:8.1f} tokens/s, in collectives "
            f"{100 * statistics.median(shares[arm]):.1f} %, all_reduce {statistics.quantiles(sums[arm], n=10)[0]:.1f} "
            f"{statistics.median(sums[arm]):.1f} us, {same} tokens",
            flush=True,
        )


if __name__ == "__main__":
    main()
