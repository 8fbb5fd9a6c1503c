"""Writes the training text as token ids, one process per shard.

  shards.py --tokenizer DIR/tokenizer.json --out DIR --shards 16 --megabytes 52 --seed 1
Each shard_N.npz holds `ids` (uint16, documents end with <|endoftext|>) and `starts` (where documents begin).
"""

import argparse
import itertools
import multiprocessing
import os
import pathlib

import numpy as np

import corpus

BATCH = 512


def write_shard(task):
    tokenizer_path, out, seed, index, n_bytes = task
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer  # after the fork, so that each process has its own

    tokenizer = Tokenizer.from_file(tokenizer_path)
    eot = tokenizer.token_to_id(corpus.EOT)
    stream = corpus.documents(seed, index)
    parts, lengths, size = [], [], 0
    while size < n_bytes:
        texts = list(itertools.islice(stream, BATCH))
        size += sum(map(len, texts))
        for encoding in tokenizer.encode_batch(texts):
            parts.append(np.array(encoding.ids + [eot], dtype=np.uint16))
            lengths.append(len(parts[-1]))
    starts = np.cumsum([0] + lengths[:-1]).astype(np.int64)
    np.savez(pathlib.Path(out) / f"shard_{index}.npz", ids=np.concatenate(parts), starts=starts)
    return sum(lengths), len(lengths), size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--megabytes", type=float, default=52)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tasks = [(args.tokenizer, str(args.out), args.seed, i, args.megabytes * 1e6) for i in range(args.shards)]
    with multiprocessing.Pool(min(args.shards, os.cpu_count())) as pool:
        sizes = pool.map(write_shard, tasks, chunksize=1)
    tokens, docs, text = (sum(s) for s in zip(*sizes))
    print(
        f"shards: {docs} documents, {text / 1e6:.0f} MB, {tokens / 1e6:.1f}M tokens, {text / tokens:.2f} characters a token",
        flush=True,
    )


if __name__ == "__main__":
    main()
