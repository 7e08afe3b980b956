#!/usr/bin/env python3
"""Our mixed-integer solver beside HiGHS and SCIP (pip: highspy, pyscipopt), one thread each, as a Markdown table.

    bench/beside_others.py --bench build/release/bin/bench_milp [--limit SECONDS] [--results FILE.jsonl] [--table] MODELS

MODELS is a folder of .mps or .mps.gz files; where there is none, `bench_milp --write` makes it, with models from seeds.
Times and the limit (10 s) are processor time, from the model in memory to the solution in memory, so that other load on
the machine counts little. Models are solved one after the other by all solvers in turn, each in a process of its own.
Results that are in the file already aren't measured again; --table makes the table from that file alone. A ratio is our
time divided by that of HiGHS, after 10 ms are added to both; if a limit was hit, the ratio is only a bound.
"""
import argparse
import importlib.util
import json
import math
import os
import subprocess
import sys
import threading
import time

OURS = "ours"
NEEDS = {"HiGHS": "highspy", "SCIP": "pyscipopt"}
SHIFT = 0.01
LEVEL = 1e-6
ENDINGS = (".mps", ".mps.gz")


def highs(path, limit):
    import highspy
    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    h.setOptionValue("threads", 1)
    h.setOptionValue("mip_rel_gap", 1e-9)
    h.readModel(path)
    h.HandleUserInterrupt = True
    start, done = time.process_time(), threading.Event()

    def watch():
        while not done.wait(0.05):
            if time.process_time() - start > limit:
                h.cancelSolve()
    watcher = threading.Thread(target=watch)
    watcher.start()
    h.solve()
    done.set()
    watcher.join()
    info, status, is_ = h.getInfo(), h.getModelStatus(), highspy.HighsModelStatus
    has_none = status in (is_.kInfeasible, is_.kUnbounded, is_.kUnboundedOrInfeasible)
    return {"seconds": time.process_time() - start,
            "objective": math.inf if has_none else info.objective_function_value,
            "bound": info.mip_dual_bound, "nodes": max(info.mip_node_count, 0), "proven": has_none or status == is_.kOptimal}


def scip(path, limit):
    import pyscipopt
    m = pyscipopt.Model()
    m.hideOutput()
    m.readProblem(path)
    m.setParam("limits/time", limit)
    m.setParam("timing/clocktype", 1)  # the processor's
    start = time.process_time()
    m.optimize()
    has_none = m.getStatus() in ("infeasible", "unbounded", "inforunbd")
    return {"seconds": time.process_time() - start,
            "objective": m.getObjVal() if m.getNSols() and not has_none else math.inf,
            "bound": m.getDualbound(), "nodes": m.getNNodes(), "proven": has_none or m.getStatus() == "optimal"}


def answer_of(solver, path, limit, bench):
    command = ([bench, "--answer", "--processor-limit", str(limit), path] if solver == OURS else
               [sys.executable, os.path.abspath(__file__), "--answer", solver, path, str(limit)])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"trouble": (done.stderr.strip().splitlines() or ["?"])[-1][:120]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def text_of(entry):
    if "trouble" in entry:
        return entry["trouble"]
    text = f"{entry['seconds']:.2f} s, {entry['nodes']}"
    if entry["proven"]:
        return text
    objective, bound = entry.get("objective"), entry.get("bound")
    gap = abs(objective - bound) / max(abs(objective), 1e-9) if objective is not None and bound is not None else math.inf
    return text + (f", gap {100 * gap:.1f} %" if math.isfinite(gap) else ", no gap")


def print_table(results):
    names = sorted({name for name, _ in results})
    solvers = [s for s in [OURS, *NEEDS] if any((n, s) in results for n in names)]
    print("| model | optimum | " + " | ".join(solvers) + " | ratio |\n" + "| --- " * (len(solvers) + 3) + "|")
    logarithms, beyond = [], []
    for name in names:
        entries = {s: results[name, s] for s in solvers if (name, s) in results}
        ended = [e for e in entries.values() if e.get("proven")]
        proven = [e["objective"] for e in ended] if all("objective" in e for e in ended) else []  # else none exists
        differ = any(abs(x - proven[0]) > LEVEL * max(1.0, abs(x)) for x in proven)
        ratio = ""
        if entries.get(OURS, {}).get("seconds") is not None and entries.get("HiGHS", {}).get("seconds") is not None:
            value = (entries[OURS]["seconds"] + SHIFT) / (entries["HiGHS"]["seconds"] + SHIFT)
            ratio = f"{value:.2f}"
            logarithms.append(math.log(value))
            beyond += [name] if value > 10 else []
        print(f"| {name} | {'DIFFERENT' if differ else f'{proven[0]:.9g}' if proven else '–'} | " +
              " | ".join(text_of(entries[s]) if s in entries else "" for s in solvers) + f" | {ratio} |")
    print()
    for s in solvers:
        entries = [results[n, s] for n in names if (n, s) in results]
        print(f"{s}: {sum(e.get('proven', False) for e in entries)} of {len(entries)} proven, "
              f"{sum(e.get('seconds', 0.0) for e in entries):.1f} s in all.")
    if logarithms:
        print(f"To HiGHS, in the geometric mean: {math.exp(sum(logarithms) / len(logarithms)):.2f}. "
              f"Beyond 10 × HiGHS: {', '.join(beyond) or 'none'}.")


def read_results(path):
    results = {}
    if os.path.exists(path):
        with open(path) as file:
            for line in file:
                entry = json.loads(line)
                results[entry.pop("model"), entry.pop("solver")] = entry
    return results


def main():
    if sys.argv[1:2] == ["--answer"]:
        solver, path, limit = sys.argv[2:]
        answer = (highs if solver == "HiGHS" else scip)(path, float(limit))
        return print("\n" + json.dumps({k: v for k, v in answer.items() if isinstance(v, bool) or math.isfinite(v)}))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench")
    parser.add_argument("--limit", type=float, default=10)
    parser.add_argument("--results", default="beside_others.jsonl")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("models", nargs="?")
    options = parser.parse_args()
    results = read_results(options.results)
    if options.table:
        return print_table(results)
    if not options.bench or not options.models:
        parser.error("--bench and the folder of models are missing")
    missing = [package for package in NEEDS.values() if importlib.util.find_spec(package) is None]
    if missing:
        print(f"Not installed, and left out: {', '.join(missing)} (pip install {' '.join(missing)})", file=sys.stderr)
    if not os.path.isdir(options.models):
        subprocess.run([options.bench, "--write", options.models], check=True, stdout=subprocess.DEVNULL)
    solvers = [OURS] + [s for s, package in NEEDS.items() if package not in missing]
    for file in sorted(f for f in os.listdir(options.models) if f.endswith(ENDINGS)):
        for solver in solvers:
            key = (file.removesuffix(".gz").removesuffix(".mps"), solver)
            if key in results:
                continue
            results[key] = answer_of(solver, os.path.join(options.models, file), options.limit, options.bench)
            with open(options.results, "a") as out:
                out.write(json.dumps({"model": key[0], "solver": solver, **results[key]}) + "\n")
    print_table(results)


if __name__ == "__main__":
    main()
