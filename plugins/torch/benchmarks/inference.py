"""vLLM's tensor parallelism with Farandole, with vLLM's own shared memory, and with Gloo, in turns in one engine.

    python plugins/torch/benchmarks/inference.py --hidden 512 --layers 4 --tokens 64 --rounds 5

Needs vLLM for CPUs and this plugin, installed. The model is small and its weights are random, so that nothing is
fetched. Prints, for each communicator, tokens per second (minimum, median, maximum of the rounds), the share of the
time that the first worker spends in collectives, and whether the greedy tokens are those of vLLM's own communicator.
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


def make_arms(worker: Any) -> None:
    """In a worker: a communicator of each kind for the group of tensor parallelism, whose calls are timed."""
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
    from vllm.distributed.parallel_state import get_tp_group

    group = get_tp_group()
    made: dict[str, Any] = {OURS: group.device_communicator}
    arguments = group.cpu_group, group.device, group.device_group
    made[VLLMS] = CpuCommunicator(*arguments, group.unique_name)
    made[GLOO] = CpuCommunicator(*arguments, "gloo")  # only groups of other names share memory
    for each in made.values():
        each.seconds = 0.0
        for name in CALLS:
            setattr(each, name, timed(each, getattr(each, name)))
    worker.arms = made


def timed(owner: Any, call: Any) -> Any:
    def perform(*args: Any, **options: Any) -> Any:
        begun = time.perf_counter()
        try:
            return call(*args, **options)
        finally:
            owner.seconds += time.perf_counter() - begun

    return perform


def choose(worker: Any, arm: str) -> str:
    """In a worker: use one of them from now on. Returns its class."""
    from vllm.distributed.parallel_state import get_tp_group

    get_tp_group().device_communicator = worker.arms[arm]
    worker.arms[arm].seconds = 0.0
    return type(worker.arms[arm]).__name__


def seconds_in(worker: Any, arm: str) -> float:
    return float(worker.arms[arm].seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, value in {"hidden": 512, "layers": 4, "tokens": 64, "rounds": 5, "prompts": 4, "workers": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # functions of ours, to our own workers
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "|".join(map(str, range(options.workers))))  # a core each
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from vllm import LLM, SamplingParams

    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, options.hidden, options.layers)
        engine = LLM(
            folder,
            tensor_parallel_size=options.workers,
            load_format="dummy",
            skip_tokenizer_init=True,
            enforce_eager=True,
            max_model_len=512,
            distributed_executor_backend="mp",
        )
    prompts = [{"prompt_token_ids": [(7 * i + 3 * j) % 2000 + 5 for j in range(16)]} for i in range(options.prompts)]
    wanted = SamplingParams(temperature=0, max_tokens=options.tokens, ignore_eos=True, detokenize=False)
    engine.collective_rpc(make_arms)
    rates: dict[str, list[float]] = {arm: [] for arm in ARMS}
    shares: dict[str, list[float]] = {arm: [] for arm in ARMS}
    tokens: dict[str, list[list[int]]] = {}
    for number in range(options.rounds + 1):  # the first warms up
        for arm in ARMS:
            assert engine.collective_rpc(choose, args=(arm,))[0] == (
                "Communicator" if arm == OURS else "CpuCommunicator"
            )
            begun = time.perf_counter()
            found = engine.generate(prompts, wanted, use_tqdm=False)
            seconds = time.perf_counter() - begun
            tokens[arm] = [[*each.outputs[0].token_ids] for each in found]
            if number:
                rates[arm].append(options.prompts * options.tokens / seconds)
                shares[arm].append(engine.collective_rpc(seconds_in, args=(arm,))[0] / seconds)
    for arm in ARMS:
        low, middle, high = min(rates[arm]), statistics.median(rates[arm]), max(rates[arm])
        same = "equal" if tokens[arm] == tokens[VLLMS] else "OTHER"
        print(
            f"{arm:<10} {low:8.1f} {middle:8.1f} {high:8.1f} tokens/s, in collectives "
            f"{100 * statistics.median(shares[arm]):.1f} %, {same} tokens",
            flush=True,
        )


if __name__ == "__main__":
    main()
