#!/usr/bin/env python3
"""How other solvers do on our problems, beside ours, in one run: HiGHS, SCIP and CP-SAT, where pip has installed them
(highspy, pyscipopt, ortools), on the models that `optpipe export-mps` writes, and CP-SAT on the problem itself, as
intervals and reservoirs.

    bench/others.py --program build/release/examples/optpipe [--time-limit S] [--threads N] [--plain] PROBLEM.json...

Prints a Markdown table: objective and bound after the time limit, and the seconds if it ended before. `plain` models
have nothing in them that only helps; the others have all of it, and the horizon that our quick builder reaches.
"""
import argparse
import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time


def installed(name):
    return importlib.util.find_spec(name) is not None


def alone(solve, *arguments):
    """In a process of its own: these packages bring libraries of the same names that don't get on with each other."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(timed, (solve,) + arguments)


def timed(solve, *arguments):
    begin = time.monotonic()
    return solve(*arguments), time.monotonic() - begin


def our_solver(model, limit, threads, program):
    out = model + ".json"
    subprocess.run([program, "solve", model, "--time-limit", str(limit), "--threads", str(threads), "--out", out],
                   stdout=subprocess.DEVNULL, check=False)
    with open(out) as file:
        answer = json.load(file)
    return answer["objective"], answer["bound"]


def our_planner(problem, limit, threads, program):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "schedule.json")
        subprocess.run([program, "plan", problem, "--time-limit", str(limit), "--threads", str(threads), "--quiet",
                        "--out", out], check=False)
        with open(out) as file:
            answer = json.load(file)
    return answer["objective"], answer["bound"]


def highs(model, limit, threads, _):
    import highspy
    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    h.setOptionValue("time_limit", float(limit))
    h.setOptionValue("threads", threads)
    h.readModel(model)
    h.run()
    info = h.getInfo()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    return (info.objective_function_value if found else None), info.mip_dual_bound


def scip(model, limit, threads, _):
    import pyscipopt
    m = pyscipopt.Model()
    m.hideOutput()
    m.readProblem(model)
    m.setParam("limits/time", limit)
    m.optimize()
    return (m.getObjVal() if m.getNSols() > 0 else None), m.getDualbound()


def cp_sat_on_model(model, limit, threads, _):
    from ortools.linear_solver.python import model_builder
    m = model_builder.Model()
    m.import_from_mps_file(model)
    solver = model_builder.Solver("sat")
    solver.set_time_limit_in_seconds(limit)
    solver.set_solver_specific_parameters(f"num_workers:{threads}")
    status = solver.solve(m)
    found = status in (model_builder.SolveStatus.OPTIMAL, model_builder.SolveStatus.FEASIBLE)
    return (solver.objective_value if found else None), (solver.best_objective_bound if found else None)


def per_rank(value, ranks):
    return value if isinstance(value, list) else [value] * ranks


def cp_sat_on_problem(problem, limit, threads):
    """Makespans with private links, no limit on the host, `weight_stash` at most `activation`; times in units of 1e-4."""
    from ortools.sat.python import cp_model
    p, scale = problem, 10_000
    ranks, count, stages = p["ranks"], p["microbatches"], p["stages"]
    if p.get("objective", "makespan") != "makespan" or p.get("transfer", {}).get("links"):
        return None
    ticks = lambda t: round(t * scale)
    hop = lambda a, b: 0 if a == b else ticks(p["p2p"][a][b] if isinstance(p["p2p"], list) else p["p2p"])
    horizon = sum(count * sum(ticks(s[k] or 0) for k in ("forward", "backward_input", "backward_weight", "offload",
                                                         "reload") if k in s) for s in stages) + count * 2 * len(
                                                             stages) * max(hop(0, r) for r in range(ranks))
    m = cp_model.CpModel()
    lanes = {r: [] for r in range(ranks)}
    engines = {(r, d): [] for r in range(ranks) for d in (0, 1)}
    memory = {r: ([], [], []) for r in range(ranks)}

    def interval(length, active=None):
        start = m.new_int_var(0, horizon, "")
        if active is None:
            return start, start + length, m.new_interval_var(start, length, start + length, "")
        return start, start + length, m.new_optional_interval_var(start, length, start + length, active, "")

    def change(rank, at, amount, active):
        for kept, value in zip(memory[rank], (at, round(amount * scale), active)):
            kept.append(value)

    makespan = m.new_int_var(0, horizon, "")
    ends = {}
    for s, c in enumerate(stages):
        r, stash = c["rank"], c["activation"]
        kept = c.get("weight_stash", 0.5 * stash)
        for j in range(count):
            split = p.get("split_backward", True)
            f = interval(ticks(c["forward"]))
            g = interval(ticks(c["backward_input"]) + (0 if split else ticks(c["backward_weight"])))
            w = interval(ticks(c["backward_weight"])) if split else g
            lanes[r] += [f[2], g[2]] + ([w[2]] if split else [])
            m.add(g[0] >= f[1])
            if split:
                m.add(w[0] >= g[1])
                m.add(makespan >= w[1])
            m.add(makespan >= g[1])
            change(r, f[0], stash, True)
            change(r, g[1], -(stash - kept if split else stash), True)
            if split:
                change(r, w[1], -kept, True)
            ends[s, j] = f, g
            if s > 0:
                m.add(f[0] >= ends[s - 1, j][0][1] + hop(stages[s - 1]["rank"], r))
                m.add(ends[s - 1, j][1][0] >= g[1] + hop(r, stages[s - 1]["rank"]))
            if c.get("offload") is None:
                continue
            travels = m.new_bool_var("")
            out, back = interval(ticks(c["offload"]), travels), interval(ticks(c["reload"]), travels)
            m.add(out[0] >= f[1]).only_enforce_if(travels)
            m.add(back[0] >= out[1]).only_enforce_if(travels)
            m.add(g[0] >= back[1]).only_enforce_if(travels)
            two = p.get("transfer", {}).get("engines", 1) == 2 and p["transfer"].get("duplex", "full") == "full"
            engines[r, 0].append(out[2])
            engines[r, 1 if two else 0].append(back[2])
            change(r, out[1], -stash, travels)
            change(r, back[0], stash, travels)
    for lane in list(lanes.values()) + list(engines.values()):
        m.add_no_overlap(lane)
    for r, limit_of in enumerate(per_rank(p.get("memory_limit"), ranks)):
        if limit_of is not None:
            m.add_reservoir_constraint_with_active(*memory[r], 0, round(limit_of * scale * (1 + 1e-6)))
    for j in range(count - 1):
        m.add(ends[0, j + 1][0][0] >= ends[0, j][0][1])
    m.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit
    solver.parameters.num_workers = threads
    status = solver.solve(m)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return (solver.objective_value / scale if found else None), solver.best_objective_bound / scale


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="plain models too")
    parser.add_argument("problems", nargs="+")
    options = parser.parse_args()
    solvers = {"OptPipe": our_solver}
    if installed("highspy"):
        solvers["HiGHS"] = highs
    if installed("pyscipopt"):
        solvers["SCIP"] = scip
    if installed("ortools"):
        solvers["CP-SAT"] = cp_sat_on_model
    number = lambda x: "–" if x is None or abs(x) > 1e15 else f"{x:.6g}"
    print("| problem | model | solver | objective | bound | seconds |\n| --- | --- | --- | --- | --- | --- |")

    def report(problem, model, solver, *call):
        try:
            answer, seconds = alone(*call)
        except Exception as e:  # one solver's trouble is no reason to lose the others' results
            print(f"| {problem} | {model} | {solver} | {type(e).__name__}: {str(e)[:80]} | | |", flush=True)
            return
        if answer is not None:
            print(f"| {problem} | {model} | {solver} | {number(answer[0])} | {number(answer[1])} | {seconds:.2f} |",
                  flush=True)

    for path in options.problems:
        with open(path) as file:
            problem = json.load(file)
        name = problem.get("name", os.path.basename(path))
        with tempfile.TemporaryDirectory() as folder:
            kinds = {"in order": ["--in-order"], "exact": []}
            if options.plain:
                kinds["plain, in order"] = ["--plain", "--in-order"]
            for kind, flags in kinds.items():
                model = os.path.join(folder, "model.mps")
                done = subprocess.run([options.program, "export-mps", path, "--out", model] + flags,
                                      stdout=subprocess.DEVNULL, check=False)
                if done.returncode != 0:
                    sys.exit(done.returncode)
                for solver, solve in solvers.items():
                    report(name, kind, solver, solve, model, options.time_limit, options.threads, options.program)
        report(name, "problem itself", "OptPipe", our_planner, path, options.time_limit, options.threads,
               options.program)
        if "CP-SAT" in solvers:
            report(name, "problem itself", "CP-SAT", cp_sat_on_problem, problem, options.time_limit, options.threads)


if __name__ == "__main__":
    main()
