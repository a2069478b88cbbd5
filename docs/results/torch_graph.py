#!/usr/bin/env python3
"""CUDA graphs of PyTorch, by torch.cuda.CUDAGraph and by doorbell.torch.CUDAGraph: the figures of torch-graph.md.

    torch_graph.py run FOLDER              on this machine's GPU, with PyTorch and transformers; the package doorbell in PYTHONPATH
    torch_graph.py rows COMMIT STARTED     the data files of torch-graph.md, from torch-graph/*.json

    torch_graph.py decode MODEL TOKENS ROUNDS     one model: text is decoded by both, in random order
    torch_graph.py generate HOW TOKENS            transformers' own generate(), HOW: torch or doorbell
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = ("gpt2", "llama-small", "llama-1b")
TOKENS, ROUNDS = 1000, 5


def model_of(name):
    import torch
    import transformers

    # Equal texts mean something only where CUDA itself gives the same text twice.
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    if name == "gpt2":
        config = transformers.GPT2Config()
    else:
        width, layers, heads = (512, 6, 8) if name == "llama-small" else (2048, 16, 32)
        config = transformers.LlamaConfig(vocab_size=32000, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
                                          num_attention_heads=heads, num_key_value_heads=8, max_position_embeddings=2048)
    config._attn_implementation = "sdpa"
    with torch.device("cuda"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().cuda(), config


class Decoder:
    """One token a step: the step is a graph, its token is read by the CPU as servers do that look for the end of a text."""

    def __init__(self, model, config, graph, room):
        import torch
        from transformers import StaticCache

        self.torch, self.graph = torch, graph
        self.cache = StaticCache(config=config, max_batch_size=1, max_cache_len=room, device="cuda", dtype=torch.float32)
        self.token = torch.zeros(1, 1, dtype=torch.long, device="cuda")
        self.position = torch.zeros(1, dtype=torch.long, device="cuda")

        def step():
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                logits = model(input_ids=self.token, past_key_values=self.cache, cache_position=self.position,
                               position_ids=self.position.view(1, 1), use_cache=True).logits
            self.token.copy_(logits[:, -1].argmax(-1, keepdim=True))
            self.position.add_(1)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        with torch.no_grad(), torch.cuda.graph(graph):
            step()

    def decode(self, first, tokens):
        """The tokens, the nanoseconds of each, and the CPU's time for all."""
        self.token.fill_(first)
        self.position.zero_()
        self.cache.reset()
        self.torch.cuda.synchronize()
        found, times = [], []
        cpu = time.process_time_ns()
        last = time.perf_counter_ns()
        for _ in range(tokens):
            self.graph.replay()
            found.append(self.token.item())
            now = time.perf_counter_ns()
            times.append(now - last)
            last = now
        return found, times, (time.process_time_ns() - cpu) / tokens


def decode(name, tokens, rounds):
    import doorbell.torch
    import torch

    model, config = model_of(name)
    graphs = {"torch": torch.cuda.CUDAGraph(), "doorbell": doorbell.torch.CUDAGraph()}
    decoders = {how: Decoder(model, config, graph, tokens + 8) for how, graph in graphs.items()}
    first = {how: decoder.decode(5, 100)[0] for how, decoder in decoders.items()}
    plan = rounds * ["torch", "doorbell"]
    random.Random(7).shuffle(plan)
    samples = {how: {"times": [], "cpu": [], "p50": []} for how in graphs}
    texts = {how: set() for how in graphs}
    for how in plan:
        found, times, cpu = decoders[how].decode(11, tokens)
        texts[how].add(tuple(found))
        samples[how]["times"] += times
        samples[how]["p50"].append(statistics.median(times))
        samples[how]["cpu"].append(cpu)
    of = graphs["doorbell"]
    rows = {}
    for how, taken in samples.items():
        times = sorted(taken["times"])
        rows[how] = {"p50_us": times[len(times) // 2] / 1e3, "p99_us": times[len(times) * 99 // 100] / 1e3, "max_us": times[-1] / 1e3,
                     "rounds_us": [p / 1e3 for p in taken["p50"]], "cpu_us": statistics.median(taken["cpu"]) / 1e3, "tokens": len(times)}
    kernels = None
    if of._graph is not None:
        kernels = len(of._graph.kernels)
    print(json.dumps({"model": name, "equal": first["torch"] == first["doorbell"] and texts["torch"] == texts["doorbell"] and len(texts["torch"]) == 1,
                      "way": of.way, "why": of.why, "kernels": kernels, **rows}))


def generate(how, tokens):
    """A script of transformers' kind; HOW doorbell has two lines more."""
    if how == "doorbell":
        import doorbell.torch
        doorbell.torch.patch()
    import torch

    model, _ = model_of("llama-small")
    model.generation_config.pad_token_id = 0
    prompt = torch.arange(3, 19, device="cuda").view(1, -1)
    made = []
    for n in range(4):
        torch.cuda.synchronize()
        cpu, start = time.process_time(), time.perf_counter()
        text = model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, cache_implementation="static")
        torch.cuda.synchronize()
        made.append({"us": 1e6 * (time.perf_counter() - start) / tokens, "cpu_us": 1e6 * (time.process_time() - cpu) / tokens})
    ways = {}
    if how == "doorbell":
        import gc
        for thing in gc.get_objects():
            if type(thing) is doorbell.torch.CUDAGraph:
                said = f"{thing.way}: {thing.why[:150]}"
                ways[said] = ways.get(said, 0) + 1
    print(json.dumps({"how": how, "text": hash(tuple(text[0].tolist())), "runs": made, "graphs": ways}))


def said(*arguments, **environment):
    done = subprocess.run([sys.executable, os.path.abspath(__file__), *map(str, arguments)], capture_output=True, text=True, timeout=400,
                          env={**os.environ, "PYTHONHASHSEED": "0", **environment})
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-4000:], file=sys.stderr)
        return {"failed": done.stderr[-600:]}
    return {**json.loads(done.stdout.splitlines()[-1]), "warnings": [line for line in done.stderr.splitlines() if "doorbell" in line][:5]}


def run(folder):
    import names

    os.makedirs(folder, exist_ok=True)
    names.write_machine(folder)
    rows = []
    for name in MODELS:
        rows.append(said("decode", name, TOKENS, ROUNDS))
        print(json.dumps(rows[-1])[:1500], flush=True)
    with open(f"{folder}/decode.json", "w") as f:
        json.dump(rows, f, indent=1)
    plan = 2 * ["torch", "doorbell"]
    random.Random(8).shuffle(plan)
    made = []
    for how in plan:
        made.append(said("generate", how, 300))
        print(json.dumps(made[-1])[:1500], flush=True)
    with open(f"{folder}/generate.json", "w") as f:
        json.dump(made, f, indent=1)


def rows(commit, started):
    def load(name):
        with open(f"{HERE}/torch-graph/{name}.json") as f:
            return json.load(f)

    def write(name, about, made):
        data_file.write(f"torch-graph-{name}", about, ["docs/results/torch_graph.py", "run"], commit, started, load("machine"),
                        [{"row": str(i + 1), **row} for i, row in enumerate(made)])

    titles = {"gpt2": "GPT-2, 124 million", "llama-small": "Llama, 6 layers", "llama-1b": "Llama, 16 layers of 2,048"}
    decoded, generated = [], []
    for row in load("decode"):
        pairs = sorted(100 * (ours / theirs - 1) for ours, theirs in zip(row["doorbell"]["rounds_us"], row["torch"]["rounds_us"]))
        for how in ("torch", "doorbell"):
            one = row[how]
            decoded.append({"model": titles[row["model"]], "how": how, "p50": f"{one['p50_us']:.1f}", "p99": f"{one['p99_us']:.1f}", "max": f"{one['max_us']:.0f}",
                            "cpu": f"{one['cpu_us']:.1f}", "tokens": f"{one['tokens']:,}", "equal": "yes" if row["equal"] else "no",
                            "change": "" if how == "torch" else f"{pairs[len(pairs) // 2]:+.1f} % ({pairs[0]:+.1f} to {pairs[-1]:+.1f})",
                            "way": "" if how == "torch" else row["way"], "why": "" if how == "torch" else row["why"]})
    for row in load("generate"):
        generated.append({"how": row["how"], "us": f"{statistics.median(r['us'] for r in row['runs'][1:]):.0f}",
                          "cpu": f"{statistics.median(r['cpu_us'] for r in row['runs'][1:]):.0f}", "text": str(row["text"])[-6:], "graphs": str(sum(row["graphs"].values()))})
    write("decode", "A decoding step as a graph, by torch and by doorbell.torch", decoded)
    write("generate", "transformers' generate() with torch.compile, as it is and patched", generated)


if __name__ == "__main__":
    what = sys.argv[1:]
    if what[:1] == ["run"] and len(what) == 2:
        run(what[1])
    elif what[:1] == ["rows"] and len(what) == 3:
        import data_file
        rows(*what[1:])
    elif what[:1] == ["decode"] and len(what) == 4:
        decode(what[1], int(what[2]), int(what[3]))
    elif what[:1] == ["generate"] and len(what) == 3:
        generate(what[1], int(what[2]))
    else:
        raise SystemExit(__doc__)
