#!/usr/bin/env python3
"""Our mixed-integer solver beside HiGHS and SCIP (pip: highspy, pyscipopt) on small random models whose coefficients,
sides and bounds have magnitudes from 1e-6 to 1e15.

    bench/magnitudes.py --program build/release/bin/optpipe [--models N] [--seed S] [--limit SECONDS] [--keep FOLDER]

Every model is solved by `optpipe solve` on one thread and on two, by HiGHS and by SCIP. The program counts models on
which both others have the same answer and ours has another, models on which ours ends in numerical trouble, and models
on which two threads find another value than one. Every returned point is checked in exact arithmetic, so that the
report says which answer is right. A point is rounded and moved within its bounds. It counts if it violates no row by
more than 1e-6 (or 1e-9 of the row's largest term), and no row of whole numbers at all. Models with a count are written
to the folder of --keep.
"""
import argparse
import importlib
import json
import math
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
from fractions import Fraction

INFINITY = math.inf
SAME = 1e-6  # relative difference of objectives that counts as none
ABSOLUTE, RELATIVE = Fraction(1, 10**6), Fraction(1, 10**9)


class Model:
    """min c x subject to low <= A x <= high, lower <= x <= upper, some x integers."""

    def __init__(self, seed):
        draw = random.Random(seed)
        columns, rows = draw.randint(1, 10), draw.randint(1, 8)
        least, most = sorted((draw.uniform(-6, 15), draw.uniform(-6, 15)))
        if draw.random() < 0.5:  # most numbers of half of the models have ordinary magnitudes
            least, most = -1, 3

        def size():
            low, high = (least, most) if draw.random() < 0.85 else (-6, 15)
            value = 10 ** draw.uniform(low, high)
            return float(round(value)) if value >= 1 and draw.random() < 0.5 else float(f"{value:.6g}")

        def number():
            return size() * draw.choice((-1, 1))

        self.integer = [draw.random() < 0.6 for _ in range(columns)]
        self.lower, self.upper, point = [], [], []
        for is_integer in self.integer:
            kind = draw.random()
            lower = 0.0 if kind < 0.7 else -size() if kind < 0.9 else -INFINITY
            upper = 1.0 if draw.random() < 0.3 else INFINITY if draw.random() < 0.2 else size()
            if is_integer:
                lower, upper = (float(math.floor(b)) if math.isfinite(b) else b for b in (lower, upper))
            self.lower.append(lower)
            self.upper.append(max(upper, lower))
            near = lower if math.isfinite(lower) else 0.0
            value = min(max(near + draw.choice((0.0, 1.0, 2.0, size())), lower), self.upper[-1])
            point.append(Fraction(math.floor(value) if is_integer and math.isfinite(value) else value))
        self.rows = []
        while len(self.rows) < rows:
            terms = {j: number() for j in draw.sample(range(columns), draw.randint(1, min(columns, 5)))}
            value = sum(Fraction(a) * point[j] for j, a in terms.items())
            if abs(value) > 10**15:
                terms = {j: number() for j in terms if point[j] == 0}
                value = Fraction(0)
            if not terms:
                continue
            side = float(value) + draw.choice((0.0, 0.0, 1.0, size())) if draw.random() < 0.8 else number()
            kind = draw.random()
            if kind < 0.45:
                self.rows.append((terms, -INFINITY, side))
            elif kind < 0.85:
                self.rows.append(({j: -a for j, a in terms.items()}, -side, INFINITY))
            else:
                self.rows.append((terms, float(value), float(value)))
        self.objective = {j: number() for j in range(columns) if draw.random() < 0.8}

    def text(self):
        """In free MPS format."""
        lines = ["NAME drawn", "ROWS", " N cost"]
        names = [f"x{j}" for j in range(len(self.integer))]
        for i, (_, low, high) in enumerate(self.rows):
            lines.append(f" {'E' if low == high else 'L' if low == -INFINITY else 'G'} r{i}")
        lines.append("COLUMNS")
        for j, name in enumerate(names):
            marker = " M{}{} 'MARKER' 'INT{}'"
            if self.integer[j]:
                lines.append(marker.format("a", j, "ORG"))
            lines.append(f" {name} cost {self.objective.get(j, 0.0)!r}")
            lines += [f" {name} r{i} {row[0][j]!r}" for i, row in enumerate(self.rows) if j in row[0]]
            if self.integer[j]:
                lines.append(marker.format("b", j, "END"))
        lines.append("RHS")
        lines += [f" RHS r{i} {(low if high == INFINITY else high)!r}" for i, (_, low, high) in enumerate(self.rows)]
        lines.append("BOUNDS")
        for j, name in enumerate(names):
            lower, upper = self.lower[j], self.upper[j]
            lines.append(f" MI BND {name}" if lower == -INFINITY else f" LO BND {name} {lower!r}")
            lines.append(f" PL BND {name}" if upper == INFINITY else f" UP BND {name} {upper!r}")
        return "\n".join(lines + ["ENDATA", ""])

    def value(self, point):
        return sum(Fraction(c) * point[j] for j, c in self.objective.items())

    def accepts(self, values):
        """Whether the point, rounded and within its bounds, violates nothing by more than the tolerances."""
        point = self.exact(values)

        def within(value, low, high, slack):
            return (low == -INFINITY or value >= Fraction(low) - slack) and \
                   (high == INFINITY or value <= Fraction(high) + slack)
        if any(not within(x, low, high, ABSOLUTE) for x, low, high in zip(point, self.lower, self.upper)):
            return False
        for terms, low, high in self.rows:
            is_whole = all(self.integer[j] and a.is_integer() for j, a in terms.items()) and \
                all(math.isinf(side) or side.is_integer() for side in (low, high))
            products = [Fraction(a) * point[j] for j, a in terms.items()]
            slack = 0 if is_whole else max(ABSOLUTE, RELATIVE * max(map(abs, products)))
            if not within(sum(products), low, high, slack):
                return False
        return True

    def exact(self, values):
        return [Fraction(round(v) if is_integer else min(max(v, low), high))
                for v, is_integer, low, high in zip(values, self.integer, self.lower, self.upper)]


def ours(path, limit, program, threads):
    out = f"{path}.{threads}.json"
    done = subprocess.run([program, "solve", path, "--threads", str(threads), "--time-limit", str(limit), "--out", out],
                          capture_output=True, text=True, check=False)
    if not os.path.exists(out):
        return {"status": f"exit {done.returncode}: {done.stderr.strip()[:100]}"}
    with open(out) as file:
        answer = json.load(file)
    os.remove(out)
    point = answer.get("solution")
    return {"status": answer["status"] + (f" ({answer['stopped_by']})" if "stopped_by" in answer else ""),
            "point": [point[f"x{j}"] for j in range(len(point))] if point else None}


def highs(path, limit):
    import highspy
    h = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("mip_rel_gap", 0.0), ("time_limit", limit)):
        h.setOptionValue(option, value)
    h.readModel(path)
    h.run()
    is_, status = highspy.HighsModelStatus, h.getModelStatus()
    names = {is_.kOptimal: "optimal", is_.kInfeasible: "infeasible", is_.kUnbounded: "unbounded",
             is_.kUnboundedOrInfeasible: "infeasible or unbounded"}
    return {"status": names.get(status, str(status)),
            "point": list(h.getSolution().col_value) if status == is_.kOptimal else None}


def scip(path, limit):
    import pyscipopt
    m = pyscipopt.Model()
    m.hideOutput()
    m.readProblem(path)
    m.setParam("limits/time", limit)
    m.optimize()
    status = {"inforunbd": "infeasible or unbounded"}.get(m.getStatus(), m.getStatus())
    names = {v.name: v for v in m.getVars()}
    return {"status": status,
            "point": [m.getVal(names[f"x{j}"]) for j in range(len(names))] if status == "optimal" else None}


def in_a_process(solver, path, limit):
    """Both libraries may crash or ignore their limit."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(False)

    def work():
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        sender.send(solver(path, limit))
    child = context.Process(target=work)
    child.start()
    sender.close()
    answer = {"status": "crashed"}
    try:
        answer = receiver.recv() if receiver.poll(4 * limit + 2) else {"status": "late"}
    except EOFError:
        pass
    child.kill()
    child.join()
    return answer


def same(model, a, b):
    """Whether two answers agree."""
    if "optimal" not in (a["status"], b["status"]):
        return a["status"] in b["status"] or b["status"] in a["status"]
    if a["status"] != b["status"]:
        return False
    x, y = (float(model.value(model.exact(answer["point"]))) for answer in (a, b))
    return abs(x - y) <= SAME * max(1.0, abs(x), abs(y))


def judge(model, our, others):
    """Which answer is right, as far as the points tell. The two others agree with each other."""
    def valid(answer):
        return answer.get("point") is not None and model.accepts(answer["point"])
    theirs = [other for other in others if valid(other)]
    our_value = model.value(model.exact(our["point"])) if valid(our) and our["status"] == "optimal" else None
    if our["status"] == "optimal" and our_value is None:
        return "OUR POINT IS INVALID"
    best = min((model.value(model.exact(other["point"])) for other in theirs), default=None)
    if our_value is not None and (best is None or our_value < best):
        return "our valid point is better"
    if best is not None:
        return "THEIR VALID POINT IS BETTER" if our_value is None or best < our_value else "level"
    return "no valid point decides"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--models", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1.0)
    parser.add_argument("--keep")
    options = parser.parse_args()
    for module in ("highspy", "pyscipopt"):  # once, before processes are forked
        importlib.import_module(module)
    counts = {}

    def count(what, model, name, *answers):
        counts[what] = counts.get(what, 0) + 1
        if answers:
            print(f"{name}: {what}: " + "; ".join(answer["status"] for answer in answers), file=sys.stderr, flush=True)
            if options.keep:
                os.makedirs(options.keep, exist_ok=True)
                with open(os.path.join(options.keep, f"{name}.mps"), "w") as file:
                    file.write(model.text())

    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.models):
            model, path = Model(seed), os.path.join(folder, "model.mps")
            with open(path, "w") as file:
                file.write(model.text())
            one, two = (ours(path, options.limit, options.program, threads) for threads in (1, 2))
            by_others = [in_a_process(solver, path, options.limit) for solver in (highs, scip)]
            count(f"status {one['status']}", model, seed)
            is_ended = one["status"] in ("optimal", "infeasible", "unbounded")
            if "trouble" in one["status"]:
                count("numerical trouble", model, seed, one, two, *by_others)
            elif not is_ended and "limit" not in one["status"]:
                count("another end", model, seed, one, two, *by_others)
            if is_ended and two["status"] in ("optimal", "infeasible", "unbounded") and not same(model, one, two):
                count("two threads differ", model, seed, one, two, *by_others)
            have_answers = all(o["status"] in ("optimal", "infeasible", "unbounded", "infeasible or unbounded")
                               for o in by_others)
            if is_ended and have_answers and same(model, *by_others) and not same(model, one, by_others[0]) \
                    and not same(model, one, by_others[1]):
                count(f"both others differ, {judge(model, one, by_others)}", model, seed, one, two, *by_others)
    print("| what | models |\n| --- | --- |")
    for what in sorted(counts):
        print(f"| {what} | {counts[what]} |")


if __name__ == "__main__":
    main()
