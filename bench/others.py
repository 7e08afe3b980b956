#!/usr/bin/env python3
"""How other solvers do on our problems, beside ours, in one run with the same time and threads: CBC and GLPK, if their
programs are installed, HiGHS, SCIP and CP-SAT, if pip has installed them (highspy, pyscipopt, ortools).

    bench/others.py --program build/release/bin/optpipe [--time-limit S[,S]] [--threads N] [--results FILE.jsonl]
                    [--only TEXT]... [--solver NAME]... [--in-order] [--table] [FOLDER | PROBLEM.json]...

Two things are solved: the model that `optpipe export-mps` writes (by `optpipe solve` and all the others), and the problem
itself (by `optpipe plan`, and by CP-SAT as intervals and reservoirs). By default the problems of the tests, 10 seconds
and 2 threads; a second time limit is for problems above 4×8. With `--in-order`, the models have no schedules in which
microbatches overtake each other.

Every answer is a line of the results file. Answers that are in the file already aren't computed again, so that a run
can be interrupted and resumed. Each solver runs in a process of its own with limits on time and memory: whatever becomes
of it, the run goes on.
Standard output gets Markdown: the summary, and one table (`--table`: from the results alone).
"""
import argparse
import importlib.util
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_MODEL_BYTES = 60e6
MOST_MEMORY_BYTES = 8 << 30
# Gaps that differ by at most this are level; it is about the gap at which the solvers stop.
LEVEL = 1e-4


# The solvers: each takes a file, a time limit in seconds and a number of threads, and answers (objective, bound), either
# of them None.

def first_number(pattern, text):
    found = re.findall(pattern, text)
    return float(found[-1]) if found else None


def output_of(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False).stdout


def our_solver(model, limit, threads, program):
    out = model + ".json"
    subprocess.run([program, "solve", model, "--time-limit", str(limit), "--threads", str(threads), "--out", out],
                   stdout=subprocess.DEVNULL, check=False)
    with open(out) as file:
        answer = json.load(file)
    return answer.get("objective"), answer.get("bound")


def our_planner(problem, limit, threads, program):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "schedule.json")
        subprocess.run([program, "plan", problem, "--time-limit", str(limit), "--threads", str(threads), "--quiet",
                        "--out", out], check=False)
        with open(out) as file:
            answer = json.load(file)
    return answer["objective"], answer["bound"]


def cbc(model, limit, threads, _):
    log = output_of("cbc", model, "-timeMode", "elapsed", "-seconds", limit, "-threads", threads, "-solve", "-quit")
    if "Result -" not in log:  # a model without integers
        objective = first_number(r"Optimal objective (\S+)", log)
        return objective, objective
    objective = first_number(r"Objective value:\s+(\S+)", log)
    return objective, objective if "Optimal solution found" in log else first_number(r"Lower bound:\s+(\S+)", log)


def glpk(model, limit, _, __):
    """One thread: it has no more."""
    solution = model + ".glpk"
    log = output_of("glpsol", "--freemps", model, "--tmlim", round(limit), "--write", solution)
    with open(solution) as file:  # s bas ROWS COLUMNS f f VALUE, or s mip ROWS COLUMNS o VALUE
        status = next(line.split() for line in file if line.startswith("s "))
    objective = float(status[-1]) if "o" in status or "f" in status else None
    proven = "o" in status or status[1:2] == ["bas"]
    return objective, objective if proven else first_number(r"mip = .*>=\s+(\S+e\S+)", log)


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
    objective = info.objective_function_value if found else None
    return objective, objective if h.getModelStatus() == highspy.HighsModelStatus.kOptimal else info.mip_dual_bound


def scip(model, limit, threads, _):
    """One thread: the package is built without a concurrent mode."""
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


class interval_model:
    """A problem for CP-SAT, as intervals and reservoirs; times in units of 1e-4, memory of 1e-6. A full backward is an
    input gradient followed at once by a weight gradient, which is equally good if no weight stash is larger than its
    activation."""

    TIME, MEMORY = 10_000, 1_000_000

    def __init__(self, problem):
        from ortools.sat.python import cp_model
        self.m, self.p = cp_model.CpModel(), problem
        self.ranks, self.count, self.stages = problem["ranks"], problem["microbatches"], problem["stages"]
        self.transfer = problem.get("transfer") or {}
        self.split = problem.get("split_backward", True)
        self.horizon = self.serial_time()
        self.computing = [[] for _ in range(self.ranks)]
        self.copying = {}
        self.device = [[] for _ in range(self.ranks)]
        self.host = [[] for _ in range(self.ranks)]
        self.link_of = {r: ("link", i) for i, group in enumerate(self.transfer.get("links") or []) for r in group}
        self.add_stages()
        self.add_resources()
        self.add_objective()

    def ticks(self, value):
        return round(value * self.TIME)

    def hop(self, a, b):
        p2p = self.p.get("p2p", 0)
        return 0 if a == b else self.ticks(p2p[a][b] if isinstance(p2p, list) else p2p)

    def serial_time(self):
        names = ("forward", "backward_input", "backward_weight", "offload", "reload")
        hops = 2 * len(self.stages) * max(self.hop(a, b) for a in range(self.ranks) for b in range(self.ranks))
        return self.count * (sum(self.ticks(s.get(n) or 0) for s in self.stages for n in names) + hops)

    def operation(self, length, kept_by, active=None):
        start = self.m.new_int_var(0, self.horizon, "")
        made = (self.m.new_interval_var(start, length, start + length, "") if active is None else
                self.m.new_optional_interval_var(start, length, start + length, active, ""))
        for resource_ in kept_by:
            resource_.append(made)
        return start, start + length

    def stored(self, at, amount, active=True):
        return at, round(amount * self.MEMORY), active

    def add_stages(self):
        ends = {}
        for s, c in enumerate(self.stages):
            for j in range(self.count):
                ends[s, j] = forward, gradient = self.add_microbatch(c)
                if s > 0:
                    before, r = self.stages[s - 1]["rank"], c["rank"]
                    self.m.add(forward[0] >= ends[s - 1, j][0][1] + self.hop(before, r))
                    self.m.add(ends[s - 1, j][1][0] >= gradient[1] + self.hop(r, before))
        for j in range(self.count - 1):  # microbatches are alike
            self.m.add(ends[0, j + 1][0][0] >= ends[0, j][0][1])

    def add_microbatch(self, c):
        r, stash = c["rank"], c["activation"]
        kept = c.get("weight_stash", 0.5 * stash) if self.split else 0
        lane = [self.computing[r]]
        backward = c["backward_input"] + (0 if self.split else c["backward_weight"])
        forward = self.operation(self.ticks(c["forward"]), lane)
        gradient = self.operation(self.ticks(backward), lane)
        self.m.add(gradient[0] >= forward[1])
        self.device[r] += [self.stored(forward[0], stash), self.stored(gradient[1], kept - stash)]
        if self.split:
            weight = self.operation(self.ticks(c["backward_weight"]), lane)
            self.m.add(weight[0] >= gradient[1])
            self.device[r].append(self.stored(weight[1], -kept))
            self.last = weight
        if c.get("offload") is not None:
            self.add_transfers(c, forward, gradient)
        return forward, gradient

    def add_transfers(self, c, forward, gradient):
        r, stash = c["rank"], c["activation"]
        travels = self.m.new_bool_var("")
        out = self.operation(self.ticks(c["offload"]), self.lanes_of_copy(r, "out"), travels)
        back = self.operation(self.ticks(c["reload"]), self.lanes_of_copy(r, "in"), travels)
        for later, earlier in ((out, forward), (back, out), (gradient, back)):
            self.m.add(later[0] >= earlier[1]).only_enforce_if(travels)
        self.device[r] += [self.stored(out[1], -stash, travels), self.stored(back[0], stash, travels)]
        self.host[r] += [self.stored(out[0], stash, travels), self.stored(back[1], -stash, travels)]

    def lanes_of_copy(self, r, direction):
        engine = ("engine", r, direction if self.transfer.get("engines", 1) == 2 else "")
        link = self.link_of.get(r, ("link of", r)) + (direction if self.transfer.get("duplex", "full") == "full" else "",)
        return [self.copying.setdefault(lane, []) for lane in (engine, link)]

    def add_resources(self):
        for lane in self.computing + list(self.copying.values()):
            self.m.add_no_overlap(lane)
        for name, changes in (("memory_limit", self.device), ("host_memory_limit", self.host)):
            limits = self.p.get(name)
            limits = limits if isinstance(limits, list) else [limits] * self.ranks
            for limit, of_rank in zip(limits, changes):
                if limit is not None and of_rank:
                    self.m.add_reservoir_constraint_with_active(*zip(*of_rank), 0, round(limit * self.MEMORY) + 10)

    def add_objective(self):
        objective = self.m.new_int_var(0, self.horizon, "")
        span = self.p.get("objective", "makespan") == "span"
        for lane in self.computing:
            first = self.m.new_int_var(0, self.horizon if span else 0, "")
            for i in lane:
                self.m.add(objective >= i.end_expr() - first)
                self.m.add(first <= i.start_expr())
        self.m.minimize(objective)


def cp_sat_on_problem(path, limit, threads, _):
    from ortools.sat.python import cp_model
    with open(path) as file:
        problem = json.load(file)
    if any(s.get("weight_stash", 0) > s["activation"] for s in problem["stages"]):
        raise ValueError("a weight stash is above its activation")
    model = interval_model(problem)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit
    solver.parameters.num_workers = threads
    found = solver.solve(model.m) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    scale = interval_model.TIME
    return (solver.objective_value / scale if found else None), solver.best_objective_bound / scale


OURS = "OptPipe"
ON_MODEL = {OURS: our_solver, "CBC": cbc, "GLPK": glpk, "HiGHS": highs, "SCIP": scip, "CP-SAT": cp_sat_on_model}
ON_PROBLEM = {OURS: our_planner, "CP-SAT": cp_sat_on_problem}
SOLVERS = {"model": ON_MODEL, "problem": ON_PROBLEM}
NEEDS = {"HiGHS": "highspy", "SCIP": "pyscipopt", "CP-SAT": "ortools", "CBC": "cbc", "GLPK": "glpsol"}


def installed(solver):
    needed = NEEDS.get(solver)
    return needed is None or importlib.util.find_spec(needed) is not None or shutil.which(needed) is not None


def version_of(solver, program):
    if solver == OURS:
        return output_of(program, "--version").strip()
    if solver == "CBC":
        return "CBC " + (re.search(r"Version:\s+(\S+)", output_of("cbc", "-quit")) or ["", "?"])[1]
    if solver == "GLPK":
        return "GLPK " + output_of("glpsol", "--version").split("\n")[0].split()[-1]
    if solver == "HiGHS":
        import highspy
        return "HiGHS " + highspy.Highs().version()
    from importlib.metadata import version
    if solver == "SCIP":
        import pyscipopt
        return f"SCIP {pyscipopt.Model().version()} (pyscipopt {version('pyscipopt')})"
    return "OR-Tools " + version("ortools")


# One answer, in a process of its own, because these packages bring different libraries of the same names.

def answer_here(task, solver, path, limit, threads, program):
    """In the child: what was found, as JSON on the last line of standard output."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    begin = time.monotonic()
    objective, bound = SOLVERS[task][solver](path, limit, threads, program)
    finite = lambda x: None if x is None or abs(x) > 1e15 else x
    print("\n" + json.dumps({"objective": finite(objective), "bound": finite(bound),
                             "seconds": round(time.monotonic() - begin, 2)}))


def stop_group(process):
    """The child and the program that it may have started."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass


def answer_of(task, solver, path, limit, threads, program):
    """Objective, bound and seconds; or the trouble, which counts as an answer without either."""
    command = [sys.executable, os.path.abspath(__file__), "--answer", task, solver, path, str(limit), str(threads), program]
    longest = 2 * limit + 30
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=longest)
        except subprocess.TimeoutExpired:
            stop_group(process)
            return {"trouble": f"hasn't stopped after {longest:g} s"}
        finally:
            stop_group(process)
    if process.returncode != 0:
        lines = err.strip().splitlines()
        return {"trouble": (lines[-1] if lines else f"ended with status {process.returncode}")[:120]}
    return json.loads(out.strip().splitlines()[-1])


# The run.

def is_small(problem):
    """Up to 4×8."""
    return len(problem["stages"]) <= 4 and problem["microbatches"] <= 8


def write_model(path, out, options):
    """None, or why there is none."""
    command = [options.program, "export-mps", path, "--out", out] + (["--in-order"] if options.in_order else [])
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (int(MOST_MODEL_BYTES),) * 2))
    except subprocess.TimeoutExpired:
        return "the model isn't written after 60 s"
    if done.returncode == 0:
        return None
    reason = done.stderr.strip().split(": ")[-1][:120]
    return reason or f"the model is above {MOST_MODEL_BYTES / 1e6:g} MB"


def run_task(task, path, file, key, options, results):
    limit = key["limit"]
    for solver in options.solvers:
        if solver not in SOLVERS[task] or (key["problem"], task, solver) in results:
            continue
        answer = ({"skipped": options.no_model} if file is None else
                  answer_of(task, solver, file, limit, options.threads, options.program))
        entry = {**key, "task": task, "solver": solver, **answer}
        results[key["problem"], task, solver] = entry
        with open(options.results, "a") as out:
            out.write(json.dumps(entry, ensure_ascii=False) + "\n")
        print(f"{key['problem']} {task} {solver} {answer}", file=sys.stderr, flush=True)


def run_problem(path, options, results):
    with open(path) as file:
        problem = json.load(file)
    name = problem.get("name", os.path.basename(path))
    small = is_small(problem)
    key = {"problem": name, "small": small, "limit": options.limits[0 if small else -1], "threads": options.threads}
    run_task("problem", path, path, key, options, results)
    if all((name, "model", solver) in results for solver in options.solvers):
        return
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model.mps")
        options.no_model = write_model(path, model, options)
        run_task("model", path, None if options.no_model else model, key, options, results)


def read_results(path):
    results = {}
    if os.path.exists(path):
        with open(path) as file:
            for line in file:
                if line.strip():
                    entry = json.loads(line)
                    results[entry["problem"], entry["task"], entry["solver"]] = entry
    return results


# The tables.

def gap_of(entry):
    """Of the objective; all of it without one."""
    objective, bound = entry.get("objective"), entry.get("bound")
    if objective is None or bound is None:
        return 1.0
    return min(1.0, max(0.0, (objective - bound) / max(abs(objective), 1e-9)))


def verdict(ours, theirs):
    """Of ours: by the gap; between two gaps that are level, by the objective."""
    difference = gap_of(theirs) - gap_of(ours)
    if abs(difference) > LEVEL:
        return "ahead" if difference > 0 else "behind"
    if ours.get("objective") is None or theirs.get("objective") is None:
        return "level"
    difference = theirs["objective"] / ours["objective"] - 1
    return "level" if abs(difference) <= LEVEL else "ahead" if difference > 0 else "behind"


def contradictions(results):
    """A bound above an objective of the same problem: one of the two is wrong. Models may leave schedules out."""
    for (name, task, solver), entry in results.items():
        for (other, other_task, other_solver), found in results.items():
            if (name, task) == (other, other_task) and entry.get("bound") and found.get("objective"):
                if entry["bound"] > found["objective"] * (1 + LEVEL):
                    yield f"{name}, {task}: {solver} says no less than {entry['bound']:.7g}, " \
                          f"{other_solver} has {found['objective']:.7g}"


def print_summary(results):
    contests = [("model", "model"), ("problem", "problem"), ("problem", "model")]
    print("| OptPipe | against | up to 4×8: ahead | level | behind | above: ahead | level | behind |")
    print("| --- " * 8 + "|")
    for mine, theirs in contests:
        for solver in NEEDS:
            counts = {(small, v): 0 for small in (True, False) for v in ("ahead", "level", "behind")}
            for (name, task, of), entry in results.items():
                ours = results.get((name, mine, OURS))
                if (task, of) == (theirs, solver) and ours and "skipped" not in entry and "skipped" not in ours:
                    counts[entry["small"], verdict(ours, entry)] += 1
            if any(counts.values()):
                print(f"| {'plan' if mine == 'problem' else 'solve'} | {solver} on the {theirs} | " +
                      " | ".join(map(str, counts.values())) + " |")
    found = list(contradictions(results))
    print("\n" + ("\n".join(found) if found else "No solver's bound is above another solver's objective."))


def print_table(results):
    number = lambda x: "–" if x is None else f"{x:.7g}"
    print("\n| problem | what | s | solver | objective | bound | gap | seconds | objective to ours | gap to ours | ours is |")
    print("| --- " * 11 + "|")
    for (name, task, solver), entry in sorted(results.items(), key=lambda r: (r[0][0], r[0][1], list(ON_MODEL).index(r[0][2]))):
        if "skipped" in entry and solver != OURS:
            continue
        row = [name, task, f"{entry['limit']:g}", "all" if "skipped" in entry else solver]
        ours = results.get((name, task, OURS))
        if "seconds" not in entry:
            row += [(entry.get("trouble") or entry["skipped"]).replace("|", "/")] + [""] * 6
        else:
            row += [number(entry["objective"]), number(entry["bound"]), f"{100 * gap_of(entry):.2f} %", f"{entry['seconds']:g}"]
            row += ["", "", ""] if solver == OURS or not ours else ratios(ours, entry)
        print("| " + " | ".join(row) + " |")


def ratios(ours, theirs):
    both = ours.get("objective") is not None and theirs.get("objective") is not None
    mine, other = gap_of(ours), gap_of(theirs)
    relation = "1" if abs(mine - other) <= 1e-9 else "∞" if mine <= 1e-9 else f"{other / mine:.3g}"
    return [f"{theirs['objective'] / ours['objective']:.4f}" if both else "–", relation, verdict(ours, theirs)]


def problem_files(places, only):
    files = []
    for place in places or [os.path.join(ROOT, "tests", "data", "problems")]:
        inside = [os.path.join(place, f) for f in os.listdir(place)] if os.path.isdir(place) else [place]
        files += [f for f in inside if f.endswith(".json")]
    return sorted(f for f in files if not only or any(text in os.path.basename(f) for text in only))


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program")
    parser.add_argument("--time-limit", default="10", metavar="S[,S]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", default="others.jsonl")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--solver", action="append", default=[], dest="solvers", choices=list(ON_MODEL))
    parser.add_argument("--in-order", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("places", nargs="*")
    options = parser.parse_args()
    if options.program is None and not options.table:
        parser.error("--program is missing")
    options.limits = [float(s) for s in options.time_limit.split(",")]
    options.solvers = [s for s in options.solvers or ON_MODEL if installed(s)]
    return options


def main():
    if sys.argv[1:2] == ["--answer"]:
        task, solver, path, limit, threads, program = sys.argv[2:]
        return answer_here(task, solver, path, float(limit), int(threads), program)
    if sys.argv[1:2] == ["--version-of"]:
        return print(version_of(*sys.argv[2:]))
    options = read_options()
    results = read_results(options.results)
    if not options.table:
        for path in problem_files(options.places, options.only):
            run_problem(path, options, results)
        versions = [output_of(sys.executable, os.path.abspath(__file__), "--version-of", solver, options.program).strip()
                    for solver in options.solvers]
        print(", ".join(versions) + f"; {options.time_limit} s, {options.threads} threads\n")
    print_summary(results)
    print_table(results)


if __name__ == "__main__":
    main()
