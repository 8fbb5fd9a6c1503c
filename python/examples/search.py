"""Searches lines by meaning: search.py EMBEDDER RERANKER QUERY < lines.txt. Vectors find the ten nearest, a cross-encoder sorts them."""
import sys

import numpy as np

from ingot import Model


def main(embedder_name: str, reranker_name: str, query: str) -> None:
    lines = [line for line in sys.stdin.read().splitlines() if line]
    with Model.load(embedder_name) as embedder, Model.load(reranker_name) as reranker:
        nearest = np.argsort(-(embedder.embed(lines, truncate=True) @ embedder.embed(query)))[:10]
        for found in reranker.rerank(query, [lines[i] for i in nearest], truncate=True):
            print(f"{found.score:.3f}  {found.document}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
