#!/usr/bin/env python3
"""`optpipe plan` beside `optpipe compare`: no published method, and no builder of ours, should find a shorter step than
`plan` does in the same time, also on a busy machine.

    bench/plan_beside_compare.py --program build/release/bin/optpipe [--time-limit S] [--threads N] [--busy N]
                                 [--drawn N] [--seed S] [--keep FOLDER] [PROBLEM.json | FOLDER]...

Problems are files, and --drawn problems made from seeds: with storage options, unequal microbatches, slices of sequences
and pairs. --busy starts N processes that only take processor time. `compare` gives every method that searches the time
limit of the plan, and runs first. The table has the problems on which `plan` is behind; --keep writes drawn ones of them.
"""
import argparse
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile

SAME = 1e-9


def drawn(seed):
    """A problem of 2 to 8 ranks with one or two stages each."""
    draw = random.Random(seed)
    kind = draw.choice(("storage", "storage", "uneven", "slices", "pairs"))
    ranks, is_v = draw.randint(2, 8), draw.random() < (0.7 if kind == "pairs" else 0.3)
    microbatches = draw.randint(max(4, ranks), 3 * ranks)
    is_even = draw.random() < 0.4

    def stage(rank):
        forward = 10.0 if is_even else float(draw.randint(7, 13))
        costs = {"rank": rank, "forward": forward, "backward_input": round(forward * draw.uniform(0.9, 1.2), 1),
                 "backward_weight": round(forward * draw.uniform(0.5, 1.0), 1), "activation": 1.0, "weight_stash": 0.5}
        if kind == "storage":
            costs["storage"] = [{"name": "keep"}, {"name": "part", "held": 0.5, "recompute": round(0.3 * forward, 1)},
                                {"name": "full", "held": 0.1, "backward_extra": forward}]
            if draw.random() < 0.7:
                each = round(forward * draw.uniform(0.4, 2.0), 1)
                costs["storage"].append({"name": "offload", "transfer_size": 1.0, "offload": each, "reload": each})
        return costs

    first = stage(0)
    order = list(range(ranks)) + (list(reversed(range(ranks))) if is_v else [])
    stages = [dict(first, rank=r) if is_even else stage(r) for r in order]
    p = {"format": "optpipe.problem/3", "name": f"drawn-{kind}-{seed}", "time_unit": "ms", "memory_unit": "stash",
         "ranks": ranks, "microbatches": microbatches, "stages": stages, "split_backward": True,
         "p2p": draw.choice((0.0, 0.5, 2.0)), "objective": "makespan",
         "memory_limit": round(draw.uniform(0.35, 1.0) * ranks * (2 if is_v else 1) + 1.0, 2)}
    if kind == "uneven":
        lengths = [draw.lognormvariate(0, 0.4) for _ in range(microbatches)]
        p["microbatches"] = [{"forward": round(0.7 * n + 0.3 * n * n, 3), "backward_input": round(0.6 * n + 0.4 * n * n, 3),
                              "backward_weight": round(n, 3), "memory": round(n, 3), "message": round(n, 3)}
                             for n in lengths]
    elif kind == "slices":
        slices, share = draw.randint(2, 6), draw.choice((0.0, 0.25, 0.5))
        factors = [round((1 - share + share * (2 * i + 1) / slices) / slices, 4) for i in range(slices)]
        p["microbatches"] = [{"sequence": s, "forward": f, "backward_input": f, "backward_weight": round(1 / slices, 4),
                              "memory": round(1 / slices, 4), "message": round(1 / slices, 4)}
                             for s in range(max(2, microbatches // 2)) for f in factors]
    elif kind == "pairs":
        gain = draw.uniform(0.6, 0.95)
        p["overlaps"] = [{"forward": f, "backward": b, "duration": round(max(x, y, gain * (x + y)), 2)}
                         for f, a in enumerate(stages) for b, c in enumerate(stages) if a["rank"] == c["rank"]
                         for x, y in [(a["forward"], c["backward_input"] + c["backward_weight"])]]
    return p


def spin():
    while True:
        pass


def files_of(paths):
    for path in paths:
        if os.path.isdir(path):
            yield from sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith(".json"))
        else:
            yield path


def run_json(command, option, folder):
    out = os.path.join(folder, "answer.json")
    done = subprocess.run([*command, option, out], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3) or not os.path.exists(out):
        return None
    with open(out) as file:
        answer = json.load(file)
    os.remove(out)
    return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--time-limit", type=float, default=3.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--drawn", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep")
    parser.add_argument("problems", nargs="*")
    options = parser.parse_args()
    busy = [multiprocessing.Process(target=spin, daemon=True) for _ in range(options.busy)]
    for process in busy:
        process.start()
    limit = str(options.time_limit)
    level = ahead = unplanned = 0
    behind = []
    with tempfile.TemporaryDirectory() as folder:
        paths = list(files_of(options.problems))
        for seed in range(options.seed, options.seed + options.drawn):
            paths.append(os.path.join(folder, f"drawn-{seed}.json"))
            with open(paths[-1], "w") as file:
                json.dump(drawn(seed), file)
        for path in paths:
            table = run_json([options.program, "compare", path, "--time-limit", limit], "--json", folder)
            plan = run_json([options.program, "plan", path, "--time-limit", limit, "--threads", str(options.threads)],
                            "--out", folder)
            methods = [m for m in table["methods"] if m.get("objective") is not None] if table else []
            if plan is None or not methods:
                unplanned += 1
                print(f"{os.path.basename(path)}: {'no plan' if methods else 'no method has a schedule'}", file=sys.stderr)
                continue
            best = min(methods, key=lambda m: m["objective"])
            ratio = plan["objective"] / best["objective"]
            level += abs(ratio - 1) <= SAME
            ahead += ratio < 1 - SAME
            if ratio > 1 + SAME:
                behind.append((os.path.basename(path), best["method"], best["objective"], plan["objective"], ratio))
                print("behind: {} {} {} {} {:.4f}".format(*behind[-1]), file=sys.stderr, flush=True)
                if options.keep and path.startswith(folder):
                    os.makedirs(options.keep, exist_ok=True)
                    os.replace(path, os.path.join(options.keep, os.path.basename(path)))
    for process in busy:
        process.terminate()
    print("| problem | best method | objective | plan | ratio |\n| --- | --- | --- | --- | --- |")
    for row in behind:
        print("| {} | {} | {:.6g} | {:.6g} | {:.4f} |".format(*row))
    print(f"\n{len(behind)} behind, {level} level, {ahead} ahead; {unplanned} without two schedules.")


if __name__ == "__main__":
    main()
