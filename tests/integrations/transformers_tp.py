"""Logits of a small Llama, of one process, or of ranks that share each layer. Arguments: folder, that of the model."""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

FOLDER, MODEL = map(Path, sys.argv[1:])


def make():
    torch.manual_seed(4)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 96}
    config = LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False)
    model = LlamaForCausalLM(config).double()
    model.save_pretrained(MODEL)
    return model


def main():
    rank = int(os.environ.get("RANK", "0"))
    if "RANK" in os.environ:
        dist.init_process_group("farandole")
        model = AutoModelForCausalLM.from_pretrained(MODEL, tp_plan="auto", dtype=torch.float64)
    else:
        model = make()
    words = torch.arange(2 * 7).reshape(2, 7) * 5 % 96
    with torch.no_grad():
        logits = model(words).logits
        generated = model.generate(words, max_new_tokens=5, do_sample=False, pad_token_id=0)
    weight = model.model.layers[0].mlp.up_proj.weight
    own = weight.to_local() if isinstance(weight, DTensor) else weight
    result = {
        "logits": logits.flatten().tolist(),
        "words": generated.tolist(),
        "backend": dist.get_backend() if dist.is_initialized() else "",
        "own rows": own.shape[0],
    }
    (FOLDER / f"{rank}.json").write_text(json.dumps(result))


main()
