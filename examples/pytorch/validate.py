"""Checks schedules of OptPipe, written for PyTorch in both formats, with PyTorch's own validators.

    python validate.py --optpipe PROGRAM PROBLEM.json...

Each problem is planned, once by `optpipe plan` and once by every method that applies. If no schedule of a method fits,
its memory limits are lifted. Offloads and recomputation of the plans are left out, because PyTorch can't run them.
PyTorch lowers `compute_only`. The checks: the order of actions, a wait for every send, and that PyTorch's simulation of
all ranks ends.

Needs torch (tested with 2.15); without it, the script prints a message and ends with status 77. All names of PyTorch
used below are private to it: other versions may use different ones.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    from torch.distributed.pipelining import schedules
except ImportError as missing:
    print(f"skipped: torch can't be imported ({missing})")
    sys.exit(77)

METHODS = [
    "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-auto", "zb-v", "v-half", "v-min", "v-auto", "dualpipe-v", "gis",
    "gis-h", "po", "po-h", "po-f", "adapipe", "mario", "adaptive"]  # fmt: skip
NO_SCHEDULE = 3
# Operations of data parallelism, which PyTorch's simulation doesn't support.
COLLECTIVES = [schedules.UNSHARD, schedules.RESHARD, schedules.REDUCE_GRAD, schedules.WAIT_REDUCE_GRAD]


def actions_of(path):
    with open(path, newline="") as file:
        return {rank: [schedules._Action.from_str(text) for text in row] for rank, row in enumerate(csv.reader(file))}


def lowered(actions, rank_of, stages, microbatches):
    """The schedule that PyTorch's runtime makes of `compute_only`."""
    for rank in actions:
        actions[rank] = schedules._add_unshard_reshard(actions[rank])
        actions[rank] = schedules._add_reduce_grad(actions[rank], microbatches)
    return schedules._add_wait_send(schedules._add_send_recv(actions, lambda s: rank_of[s], stages))


def validate(problem, path, form):
    stages = len(problem["stages"])
    actions = actions_of(path)
    rank_of = schedules._validate_schedule(actions, problem["ranks"], stages, problem["microbatches"])
    if form == "compute_only":
        actions = lowered(actions, rank_of, stages, problem["microbatches"])
    schedules._validate_send_waits(actions)
    alone = {rank: [a for a in row if a.computation_type not in COLLECTIVES] for rank, row in actions.items()}
    schedules._simulate_comms_compute(alone, lambda s: rank_of[s], stages)


def ample(problem):
    """The problem with memory for all stashes."""
    limit = problem["memory_limit"]
    times = 2 * problem["microbatches"]
    return problem | {"memory_limit": [times * each for each in limit] if isinstance(limit, list) else times * limit}


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--optpipe", default="optpipe", help="the program optpipe")
    options.add_argument("--time-limit", default="1", help="of each plan, in seconds")
    options.add_argument("problems", nargs="+", type=pathlib.Path)
    given = options.parse_args()
    valid, plans, methods, wrong = 0, 0, set(), []
    with tempfile.TemporaryDirectory() as folder:
        plan, written, roomy = (pathlib.Path(folder) / name for name in ("plan.json", "plan.csv", "roomy.json"))
        for path in given.problems:
            problem = json.loads(path.read_text())
            for method in [None, *METHODS]:
                how = ["--method", method] if method else ["--time-limit", given.time_limit]
                roomy.write_text(json.dumps(ample(problem)))
                for asked in (path, roomy) if method else (path,):
                    done = subprocess.run([given.optpipe, "plan", asked, "--out", plan, "--quiet", *how],
                                          capture_output=True, check=False)  # fmt: skip
                    if done.returncode != NO_SCHEDULE:
                        break
                if method and done.returncode == NO_SCHEDULE:
                    continue
                done.check_returncode()
                plans += method is None
                methods |= {method} - {None}
                for form in ("compute_only", "compute_comms"):
                    export = [given.optpipe, "export-csv", asked, plan, "--format", form, "--without-storage"]
                    subprocess.run([*export, "--out", written], check=True, capture_output=True)
                    try:
                        validate(problem, written, form)
                        valid += 1
                    except Exception as error:  # the validators raise various exceptions
                        wrong.append(f"{path.stem}, {method or 'plan'}, {form}: {error}")
    print("\n".join(wrong))
    print(f"{valid} files are valid, {len(wrong)} aren't: plans of {plans} problems, and schedules by "
          f"{', '.join(m for m in METHODS if m in methods)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
