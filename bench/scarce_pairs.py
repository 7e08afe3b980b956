#!/usr/bin/env python3
"""The shortest step with pairs in little memory, by CP-SAT (pip: ortools), for small problems of the published table.

    bench/scarce_pairs.py RANKS MICROBATCHES PAIR SHARE [--below STEP] [--limit SECONDS] [--write PROBLEM.json]
    bench/scarce_pairs.py RANKS MICROBATCHES PAIR SHARE --period TIME [--limit SECONDS]

There are two stages per rank (v placement). F, I and W of a stage take 1 and a stash takes 1, of which W needs 0.5. PAIR is
the table's FwB, the duration of both pairs of a rank, a multiple of 0.5: 4, 5 or 5.5, where 6 gains nothing. SHARE is the
memory limit as a share of DualPipeV's memory. With --below, CP-SAT looks only for shorter steps, and INFEASIBLE proves that
there are none. --write writes the problem for `optpipe compare` and `optpipe plan`. With --period, CP-SAT looks for a pattern
of MICROBATCHES that repeats every TIME, without a beginning and an end. If there is none, there is no shorter one either.

Microbatches are in the same sequence on all stages, forwards and backwards. This excludes no step: microbatches are equal and
stored alike, so two that overtake each other can exchange their names. Times are multiples of a quarter, because durations
are, and operations start as early as they can. A step stays valid if its pairs get shorter, so what is proven for PAIR also
holds for longer pairs. For patterns, TIME must be a multiple of a quarter.
"""
import argparse
import json

QUARTERS = 4


class Cells:
    """The numbering of stages, and what all problems have in common."""

    def __init__(self, ranks, microbatches):
        self.ranks, self.stages, self.microbatches = ranks, 2 * ranks, microbatches
        self.all = [(s, m) for s in range(self.stages) for m in range(microbatches)]

    def rank(self, stage):
        return min(stage, self.stages - 1 - stage)

    def of_rank(self, rank):
        return [c for c in self.all if self.rank(c[0]) == rank]

    def other_on_rank(self, stage):
        return self.stages - 1 - stage


def problem(cells, pair, limit):
    stages = [{"rank": cells.rank(s), "forward": 1, "backward_input": 1, "backward_weight": 1, "activation": 1}
              for s in range(cells.stages)]
    overlaps = [{"forward": s, "backward": t, "duration": pair / 2}
                for s in range(cells.stages) for t in sorted({s, cells.other_on_rank(s)})]
    return {"format": "optpipe.problem/3", "ranks": cells.ranks, "microbatches": cells.microbatches, "stages": stages,
            "memory_limit": limit, "overlaps": overlaps}


class Times:
    """Times in quarters, memory in halves of a stash. A cell has an F, a gradient (I or B) and a W, which is empty after B."""

    def __init__(self, cells, pair, halves, horizon):
        from ortools.sat.python import cp_model
        self.cells, self.pair, self.halves, self.horizon = cells, pair, halves, horizon
        self.in_flight = halves // 2
        self.m = cp_model.CpModel()
        for name in ("f", "f_end", "b", "b_end", "w", "w_end"):
            setattr(self, name, {c: self.m.new_int_var(0, horizon, "") for c in cells.all})
        self.is_full = {c: self.m.new_bool_var("") for c in cells.all}
        self.pairs_of_f = {c: [] for c in cells.all}
        self.pairs_of_b = {c: [] for c in cells.all}
        self.pairs_of_rank = {r: [] for r in range(cells.ranks)}

    def add_pair(self, f, b, b_start):
        chosen = self.m.new_bool_var("")
        self.pairs_of_f[f].append(chosen)
        self.pairs_of_b[b].append(chosen)
        self.pairs_of_rank[self.cells.rank(f[0])].append(chosen)
        self.m.add(self.f[f] == b_start).only_enforce_if(chosen)

    def add_durations(self, c):
        m, one = self.m, QUARTERS
        f_paired, b_paired = sum(self.pairs_of_f[c]), sum(self.pairs_of_b[c])
        m.add(f_paired <= 1)
        m.add(b_paired <= self.is_full[c])
        m.add(self.f_end[c] == self.f[c] + one + (self.pair - one) * f_paired)
        m.add(self.b_end[c] == self.b[c] + one + one * self.is_full[c] + (self.pair - 2 * one) * b_paired)
        m.add(self.w_end[c] == self.w[c] + one - one * self.is_full[c])
        m.add(self.w[c] >= self.b_end[c])
        m.add(self.w[c] == self.b_end[c]).only_enforce_if(self.is_full[c])

    def add_inputs(self, c):
        s, k = c
        if s > 0:
            self.m.add(self.f[c] >= self.f_end[s - 1, k])
        self.m.add(self.b[c] >= (self.b_end[s + 1, k] if s + 1 < self.cells.stages else self.f_end[c]))

    def kinds_alone(self, c):
        """Whether F is in no pair, and whether the backward is split."""
        alone = self.m.new_bool_var("")
        self.m.add(alone == 1 - sum(self.pairs_of_f[c]))
        return alone, self.is_full[c].negated()

    def work_of(self, r):
        count = len(self.cells.of_rank(r))
        return 3 * QUARTERS * count - (3 * QUARTERS - self.pair) * sum(self.pairs_of_rank[r])

    def difference(self, end, start):
        found = self.m.new_int_var(0, self.horizon, "")
        self.m.add(found == end - start)
        return found


class Step(Times):
    def __init__(self, cells, pair, halves, horizon):
        super().__init__(cells, pair, halves, horizon)
        self.end = self.m.new_int_var(0, horizon, "")
        # The memory limits how many microbatches are in flight, and so how far apart those of a pair are.
        for s, k in cells.all:
            for t in {s, cells.other_on_rank(s)}:
                for n in range(max(0, k - self.in_flight + 1), k):
                    self.add_pair((s, k), (t, n), self.b[t, n])
        for c in cells.all:
            self.add_durations(c)
            self.add_inputs(c)
            self.add_sequence(c)
            self.m.add(self.end >= self.w_end[c])
        for r in range(cells.ranks):
            self.add_rank(r)
        self.m.minimize(self.end)

    def add_sequence(self, c):
        s, k = c
        if k > 0:
            self.m.add(self.f[c] >= self.f_end[s, k - 1])
            self.m.add(self.b[c] >= self.b_end[s, k - 1])
        if k >= self.in_flight:
            self.m.add(self.f[c] >= self.b_end[s, k - self.in_flight])

    def add_rank(self, r):
        m, one = self.m, QUARTERS
        work, held = [], []
        for c in self.cells.of_rank(r):
            alone, split = self.kinds_alone(c)
            work.append(m.new_optional_fixed_size_interval_var(self.f[c], one, alone, ""))
            work.append(self.interval(self.b[c], self.b_end[c]))
            work.append(m.new_optional_fixed_size_interval_var(self.w[c], one, split, ""))
            held += [self.interval(self.f[c], self.b_end[c]), self.interval(self.f[c], self.w_end[c])]
        m.add_no_overlap(work)
        m.add_cumulative(held, [1] * len(held), self.halves)
        m.add(self.end >= one * r + self.work_of(r))

    def interval(self, start, end):
        return self.m.new_interval_var(start, self.difference(end, start), end, "")


class Pattern(Times):
    """One period of a step without beginning and end."""

    def __init__(self, cells, pair, halves, period):
        super().__init__(cells, pair, halves, period * (halves // 2 // cells.microbatches + 3))
        self.period = period
        self.m.add(self.f[0, 0] == 0)
        for s, k in cells.all:
            for t in {s, cells.other_on_rank(s)}:
                for lag in range(1, self.in_flight):
                    b = (t, (k - lag) % cells.microbatches)
                    self.add_pair((s, k), b, self.later(self.b, (t, k), -lag))
        for c in cells.all:
            self.add_durations(c)
            self.add_inputs(c)
            self.m.add(self.later(self.f, c, 1) >= self.f_end[c])
            self.m.add(self.later(self.b, c, 1) >= self.b_end[c])
            self.m.add(self.later(self.f, c, self.in_flight) >= self.b_end[c])
        for r in range(cells.ranks):
            self.add_rank(r)

    def later(self, times, c, microbatches):
        """The time of the same operation, so many microbatches later."""
        periods, k = divmod(c[1] + microbatches, self.cells.microbatches)
        return times[c[0], k] + periods * self.period

    def add_rank(self, r):
        """Operations and stashes are also added one period earlier, so that those that cross the end of the period count."""
        m, one = self.m, QUARTERS
        work, held, always = [], [], []
        for c in self.cells.of_rank(r):
            alone, split = self.kinds_alone(c)
            f, b, w = (self.split(times[c])[1] for times in (self.f, self.b, self.w))
            length = self.difference(self.b_end[c], self.b[c])
            for earlier in (0, self.period):
                work.append(m.new_optional_fixed_size_interval_var(f - earlier, one, alone, ""))
                work.append(self.interval(b - earlier, length))
                work.append(m.new_optional_fixed_size_interval_var(w - earlier, one, split, ""))
            for end in (self.b_end[c], self.w_end[c]):
                periods, rest = self.split(self.difference(end, self.f[c]))
                always.append(periods)
                held += [self.interval(f - earlier, rest) for earlier in (0, self.period)]
        m.add_no_overlap(work)
        room = m.new_int_var(0, self.halves, "")
        m.add(room == self.halves - sum(always))
        m.add_cumulative(held, [1] * len(held), room)
        m.add(self.work_of(r) <= self.period)

    def split(self, time):
        """The number of complete periods, and the remainder."""
        periods = self.m.new_int_var(0, self.horizon // self.period, "")
        rest = self.m.new_int_var(0, self.period - 1, "")
        self.m.add(time == periods * self.period + rest)
        return periods, rest

    def interval(self, start, length):
        end = self.m.new_int_var(-self.period, 3 * self.period, "")
        self.m.add(end == start + length)
        return self.m.new_interval_var(start, length, end, "")


def solve(m, limit):
    from ortools.sat.python import cp_model
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = limit
    status = solver.solve(m)
    answer = f"{solver.status_name(status)} after {solver.wall_time:.1f} s"
    if m.has_objective() and status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        answer += f": step {solver.objective_value / QUARTERS:g}, none below {solver.best_objective_bound / QUARTERS:g}"
    return answer


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("ranks", type=int)
    options.add_argument("microbatches", type=int)
    options.add_argument("pair", type=float)
    options.add_argument("share", type=float)
    options.add_argument("--below", type=float)
    options.add_argument("--period", type=float)
    options.add_argument("--limit", type=float, default=60.0)
    options.add_argument("--write")
    given = options.parse_args()
    cells = Cells(given.ranks, given.microbatches)
    limit = given.share * (2 * given.ranks + 1)
    if given.write:
        with open(given.write, "w") as file:
            json.dump(problem(cells, given.pair, limit), file)
    pair, halves = round(QUARTERS * given.pair / 2), int(2 * limit)
    if given.period:
        model = Pattern(cells, pair, halves, round(QUARTERS * given.period))
    else:
        longest = QUARTERS * 6 * cells.stages * (given.microbatches + 1)
        model = Step(cells, pair, halves, round(QUARTERS * given.below) - 1 if given.below else longest)
    print(solve(model.m, given.limit))


if __name__ == "__main__":
    main()
