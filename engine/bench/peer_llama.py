"""llama.cpp as a peer, run as a script by a Python that has ``llama_cpp``; prints one JSON line.

Not imported by Hearth: the binding takes half an hour to build, so it may live in another
environment (``hearth bench decode --peer-python PATH``).
"""

from __future__ import annotations

import argparse
import json
import sys
import time


def main() -> None:
    from llama_cpp import Llama

    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--decode-tokens", type=int, default=0)
    options = parser.parse_args()
    prompt_ids: list[int] = json.load(sys.stdin)
    llama = Llama(
        options.model,
        n_ctx=len(prompt_ids) + options.decode_tokens + 8,
        n_batch=512,
        n_threads=options.threads,
        n_threads_batch=options.threads,
        verbose=False,
    )
    llama.eval(prompt_ids[:8])  # the first call allocates
    llama.reset()
    started = time.perf_counter()
    llama.eval(prompt_ids)
    prefill_s = time.perf_counter() - started
    started = time.perf_counter()
    for _ in range(options.decode_tokens):
        llama.eval([int(llama.sample(temp=0.0))])
    decode_s = time.perf_counter() - started
    json.dump({"prefill_s": prefill_s, "decode_s": decode_s}, sys.stdout)


if __name__ == "__main__":
    main()
