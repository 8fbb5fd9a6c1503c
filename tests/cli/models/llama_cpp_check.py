"""Loads a GGUF file in llama.cpp and compares its results with the golden data of transformers. Needs the package
xllamacpp. llama_cpp_test.py runs it, because llama.cpp ends the process at some faults.

    llama_cpp_check.py (logits | vectors | scores) FILE GOLDEN.json

Prints the largest difference of log-probabilities, vectors of length 1, or scores."""
import json
import os
import pathlib
import sys

import numpy as np
import xllamacpp

kind, path, golden_path = sys.argv[1:]
golden = json.loads(pathlib.Path(golden_path).read_text())
params = xllamacpp.CommonParams()
params.model.path = path
params.n_ctx = params.n_batch = params.n_ubatch = 512
params.n_parallel = params.cpuparams.n_threads = 1
params.warmup = False
params.embedding = kind != "logits"
if kind == "scores":
    params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK
server = xllamacpp.Server(params)


def ask(handle, body):
    answer = handle(body)
    answer = json.loads(answer) if isinstance(answer, str) else answer
    assert "error" not in answer, answer
    return answer


def logits_difference():
    logits = np.load(pathlib.Path(golden_path).parent / golden["logits"]).astype(np.float64)
    logits = logits.reshape(-1, logits.shape[-1])
    for k in range(len(logits) - 1, 2, -1):  # llama.cpp gives no probabilities where an answer would be empty
        answer = ask(server.handle_completions, {"prompt": golden["tokens"][:k + 1], "n_predict": 1, "n_probs": logits.shape[1], "temperature": 0, "cache_prompt": False})
        if answer["choices"][0]["logprobs"]:
            break
    expected = logits[k] - logits[k].max()
    expected -= np.log(np.exp(expected).sum())
    got = {one["id"]: one["logprob"] for one in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}
    assert len(got) == logits.shape[1]
    return max(abs(got[i] - e) for i, e in enumerate(expected) if e > -20)


def vectors_difference():
    worst = 0
    for text, expected in zip(golden["texts"], golden["embeddings"]["plain"]):
        if text:  # llama.cpp refuses empty texts
            got = np.array(ask(server.handle_embeddings, {"input": text})["data"][0]["embedding"])
            worst = max(worst, np.abs(got / np.linalg.norm(got) - np.array(expected) / np.linalg.norm(expected)).max())
    return worst


def scores_difference():
    got, expected = [], []
    for document, score in zip(golden["documents"], golden["scores"]):
        answer = server.handle_rerank({"query": golden["query"], "documents": [document]})
        answer = json.loads(answer) if isinstance(answer, str) else answer
        if "error" in answer:  # llama.cpp does not cut documents that are too long
            assert answer["error"]["type"] == "exceed_context_size_error", answer
            continue
        got.append(answer["results"][0]["relevance_score"])
        expected.append(score)
    assert len(got) > 2
    got, expected = np.array(got), np.array(expected)
    return min(np.abs(got - expected).max(), np.abs(1 / (1 + np.exp(-got)) - expected).max())  # some are before the sigmoid


print("difference", float({"logits": logits_difference, "vectors": vectors_difference, "scores": scores_difference}[kind]()), flush=True)
os._exit(0)  # the server's threads need not end
