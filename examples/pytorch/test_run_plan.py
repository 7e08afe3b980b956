"""Tests run_plan.py: plans of all storage options train as one process does, in the memory and the order of the plan.

    python test_run_plan.py --optpipe PROGRAM [--ranks 2 4 8]

The plans are for linear, loop and v placements. In some, each stage has one storage option; in others, the planner
chooses in a tight memory, with split or with full backwards. Gradients of each step have to be those of one process that adds up microbatches in the
order of the plan: bit for bit. Without torch, the script prints a message and ends with status 77.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import run_plan
import torch
import torch.multiprocessing as processes
from torch import distributed as dist
from torch import nn

STEPS = 2
WIDTH = 48
SAMPLES = 32
LEARNING_RATE = 0.05
# Saved bytes may exceed the plan's peak by this share, as sizes are rounded.
ROUNDING = 0.02
TIMES = {"forward": 1.0, "backward_input": 1.1, "backward_weight": 0.7}
MICROBATCHES_PER_RANK = 2
# Costs from a trace differ from the runtime's by at most this share, beside the milliseconds that Python takes between
# both measurements.
TRACE_ERROR, TRACE_SLACK = 0.05, 0.02
# The default of a stage: submodules that recompute, by storage option.
SELECTIVE = ["wide"]


class wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(nn.functional.dropout(nn.functional.gelu(self.up(x)), 0.1, self.training))


class layer(nn.Module):
    """A stage with residual connections, random numbers, a weight that is used twice, and a second output that doesn't
    depend on the input."""

    def __init__(self):
        super().__init__()
        self.norm, self.twice, self.wide = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), wide()
        self.beside = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x, beside=0.0):
        x = x + beside + torch.tanh(self.twice(self.norm(x)))
        return x + self.wide(torch.sigmoid(self.twice(x))), torch.tanh(self.beside)


class training:
    """What MODEL.py would define."""

    seed = 11
    recomputed = {"selective": SELECTIVE, "selective inside": SELECTIVE, "selective and offload": SELECTIVE}

    @staticmethod
    def module(stage):
        torch.manual_seed(stage)
        return layer().double()

    @staticmethod
    def inputs(step, microbatch):
        generator = torch.Generator().manual_seed(1000 * step + microbatch)
        return torch.randn(SAMPLES, WIDTH, generator=generator, dtype=torch.double)

    @staticmethod
    def loss(output, beside, step, microbatch):
        return nn.functional.mse_loss(output + beside, training.inputs(step + STEPS, microbatch))


def sizes_of(stages):
    """The stages of a problem with their sizes as they are, and with storage options of all kinds by name."""
    tensors, found = (training.inputs(0, 0),), []
    for s in range(stages):
        loss = (lambda *outputs: training.loss(*outputs, 0, 0)) if s == stages - 1 else None
        entry, tensors = run_plan.measure_stage(
            training.module(s), tensors, loss, is_first=s == 0, recomputed=training.recomputed, repeats=1)
        by_name = {each["name"]: each for each in entry.pop("storage")}
        held = {name: each.get("held", entry["activation"]) for name, each in by_name.items()}
        transfer = {"offload": 0.6, "reload": 0.6}
        options = {
            "keep": {},
            "offload": {"transfer_size": entry["activation"]} | transfer,
            "half": {"transfer_size": 0.5 * entry["activation"]} | transfer,
            "recompute": {"held": held["recompute"], "recompute": 0.8},
            "inside": {"held": held["recompute"], "backward_extra": 0.8},
            "selective": {"held": held["selective"], "recompute": 0.5},
            "selective inside": {"held": held["selective"], "backward_extra": 0.5},
            "selective and offload": {"held": held["selective"], "recompute": 0.5, "transfer_size": held["selective"]}
            | transfer,
        }
        found.append((entry | TIMES, [{"name": name} | each for name, each in options.items()]))
    return found


def rank_of(placement, s, ranks):
    return min(s, 2 * ranks - 1 - s) if placement == "v" else s % ranks


def problems_of(ranks):
    """Eight problems by name: one option for each stage, and all of them in a tight memory, there also with full
    backwards alone."""
    microbatches = MICROBATCHES_PER_RANK * ranks
    of_two_per_rank = sizes_of(2 * ranks)
    of_one_per_rank = sizes_of(ranks)
    for number, placement in enumerate(["linear", "loop", "v"]):
        own = of_one_per_rank if placement == "linear" else of_two_per_rank
        for kind in ["one option", "tight"] + ["full backwards"] * (placement != "loop"):
            is_tight = kind != "one option"
            stages = []
            for s, (costs, options) in enumerate(own):
                # The number of the placement is added so that small pipelines, too, use all options.
                chosen = options if is_tight else [options[1 + (s + 2 * ranks * number) % (len(options) - 1)]]
                stages.append(costs | {"rank": rank_of(placement, s, ranks), "storage": chosen})
            whole = max(each["activation"] for each in stages) * len(stages) / ranks
            limit = 1.6 * whole if is_tight else None
            yield f"{placement}, {kind}", {
                "format": "optpipe.problem/2", "ranks": ranks, "microbatches": microbatches, "p2p": 0.05,
                "memory_limit": limit, "split_backward": kind != "full backwards", "stages": stages}


def planned(program, problem, folder):
    """The plan and the programs of a problem."""
    files = [folder / name for name in ("problem.json", "plan.json", "programs.json")]
    files[0].write_text(json.dumps(problem))
    subprocess.run([program, "plan", *files[:1], "--quiet", "--gap", "0.1", "--out", files[1]], check=True)
    subprocess.run([program, "lower", *files[:2], "--out", files[2]], check=True)
    return [json.loads(each.read_text()) for each in files[1:]]


def orders_of(operations, problem):
    """The computations and the transfers of each rank, in the order of their starts."""
    orders = {}
    for op, _ in sorted(operations, key=lambda each: each[1]):
        s, kind, _ = run_plan.parts_of(op)
        lane = "copy" if kind in ("OFFLOAD", "RELOAD") else "compute"
        orders.setdefault((problem["stages"][s]["rank"], lane), []).append(op)
    return orders


def train_alone(problem, plan):
    """Losses and gradients of each step in one process, which adds up the microbatches in the order of the plan."""
    stages, microbatches = len(problem["stages"]), problem["microbatches"]
    layers = [training.module(s) for s in range(stages)]
    order = {"W": {}, "I": {}}
    for each in sorted(plan["operations"], key=lambda each: each["start"]):
        s, kind, m = run_plan.parts_of(each["op"])
        for half in "IW":
            if kind in ("B", half):
                order[half].setdefault(s, []).append(m)
    results = []
    for step in range(STEPS):
        total, gradients = 0.0, {}
        for m in range(microbatches):
            values = (training.inputs(step, m),)
            for s, each in enumerate(layers):
                torch.manual_seed(run_plan.seed_of(training, step, s, m, stages, microbatches))
                values = each(*values)
            loss = training.loss(*values, step, m)
            (loss / microbatches).backward()
            total += loss.item()
            for s, each in enumerate(layers):
                for name, p in each.named_parameters():
                    gradients[s, name, m], p.grad = p.grad, None
        of_step = {}
        for s, each in enumerate(layers):
            for name, p in each.named_parameters():
                # I computes the gradient of a weight that is used twice, except on the first stage, whose I is empty.
                own_order = order["I" if s > 0 and name.startswith("twice") else "W"][s]
                of_step[s, name] = gradients[s, name, own_order[0]].clone()
                for m in own_order[1:]:
                    of_step[s, name] += gradients[s, name, m]
                with torch.no_grad():
                    p -= LEARNING_RATE * of_step[s, name]
        results.append((total / microbatches, of_step))
    return results


def train_rank(problem, plan, programs, expected):
    """What differs from the plan, or from one process."""
    own = run_plan.pipeline(training, problem, plan, programs, "cpu")
    wrong = []
    planned_orders = orders_of([(each["op"], each["start"]) for each in plan["operations"]], problem)
    for step, (expected_loss, gradients) in enumerate(expected):
        loss, times = own.step(step)
        if loss is not None and abs(loss - expected_loss) > 1e-12 * abs(expected_loss):
            wrong.append(f"step {step}: the loss is {loss}, not {expected_loss}")
        for key, order in orders_of([(op, start) for op, start, _ in times], problem).items():
            if order != planned_orders[key]:
                wrong.append(f"step {step}: rank {key[0]}: {key[1]} in another order: {order}")
        for s, runner in own.own.items():
            for name, p in runner.module.named_parameters():
                if not torch.equal(p.grad, gradients[s, name]):
                    off = (p.grad - gradients[s, name]).abs().max() / gradients[s, name].abs().max()
                    wrong.append(f"step {step}: the gradient of {name} of stage {s} is off by {off:.1e}")
                with torch.no_grad():
                    p -= LEARNING_RATE * p.grad
                p.grad = None
    most, peak = own.meters["device"].most, 1e9 * plan["peak_memory"][own.rank]
    if most > (1 + ROUNDING) * peak:
        wrong.append(f"rank {own.rank} saved {most} bytes, the plan's peak is {peak:.0f}")
    if own.meters["device"].now or own.meters["host"].now:
        wrong.append(f"rank {own.rank} still holds memory after the steps")
    return wrong, most / peak


def process(rank, ranks, cases, folder, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    results.put([train_rank(*each) for each in cases])
    dist.barrier()
    dist.destroy_process_group()


def check(program, ranks, folder):
    problems = dict(problems_of(ranks))
    cases, used = [], set()
    for problem in problems.values():
        plan, programs = planned(program, problem, folder)
        used |= {each["storage"] for each in plan["operations"] if "storage" in each}
        cases.append((problem, plan, programs, train_alone(problem, plan)))
    results = processes.get_context("spawn").SimpleQueue()
    context = processes.spawn(process, (ranks, cases, folder, results), nprocs=ranks, join=False)
    of_ranks = []
    while len(of_ranks) < ranks:
        if context.join(0.1) or not results.empty():  # raises the exception of a process
            of_ranks.append(results.get())
    while not context.join():
        pass
    is_right = True
    for number, name in enumerate(problems):
        wrong = [each for of_rank in of_ranks for each in of_rank[number][0]]
        shares = [of_rank[number][1] for of_rank in of_ranks]
        print(f"{ranks} ranks, {name}: saved bytes {min(shares):.3f} to {max(shares):.3f} of the plan's peaks, "
              f"{len(wrong)} differences", *wrong[:10], sep="\n  ", flush=True)
        is_right = is_right and not wrong
    print(f"{ranks} ranks: storage options {sorted(used)}")
    return is_right and len(used) == 8


def model_on_the_page():
    """The first example of README.md in Python."""
    page = pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    return page.split("```python\n")[1].split("```")[0]


def times_by_operation(problem):
    """The times of a problem's operations, by stage and name."""
    found = {}
    for s, stage in enumerate(problem["stages"]):
        for name in "forward", "backward_input", "backward_weight":
            found[s, name] = stage[name]
        for option in stage["storage"]:
            for name in "recompute", "offload", "reload":
                found[s, f"{name} of {option['name']}"] = option.get(name, 0.0)
    return found


def names_missing_program():
    """Whether run_plan.py says at once that the program isn't there."""
    try:
        run_plan.program_optpipe("no-such-program")
    except SystemExit as refusal:
        return "there is no program no-such-program" in str(refusal)
    return False


def check_commands(program, folder):
    """Runs the commands of README.md with its model. The profiler's trace and the runtime measure the same operations,
    so both have to give the same costs."""
    model, script = folder / "model.py", run_plan.__file__
    model.write_text(model_on_the_page())
    planned, trace = folder / "planned", folder / "trace.json"
    subprocess.run([sys.executable, script, "plan", model, "--ranks", "2", "--microbatches", "4", "--memory-limit",
                    "0.03", "--repeats", "2", "--optpipe", program, "--time-limit", "1", "--out", planned], check=True)
    subprocess.run([sys.executable, script, "run", model, planned, "--device", "cpu", "--steps", "3", "--out",
                    folder / "step.json", "--trace", trace], check=True)
    steps = sorted(folder.glob("step-*.json"))
    traces = [trace.with_stem(f"trace-{rank}") for rank in range(2)]
    results = {}
    for name, measured in ("trace", ["--trace", *traces, "--plan", planned / "plan.json"]), ("steps", steps):
        out = folder / f"by-{name}.json"
        subprocess.run([program, "profile", planned / "problem.json", *measured, "--warm-up", "1", "--quiet", "--out",
                        out], check=True)
        results[name] = times_by_operation(json.loads(out.read_text()))
    before = times_by_operation(json.loads((planned / "problem.json").read_text()))
    deviations = {key: max(0.0, abs(results["trace"][key] - took) - TRACE_SLACK) / took
                  for key, took in results["steps"].items() if took != before[key]}
    most = max(deviations.values())
    print(f"trace and runtime: {len(deviations)} costs that differ by {100 * most:.2g} % at most",
          *(f"stage {s}: {name} by {100 * each:.2g} %" for (s, name), each in deviations.items()), sep="\n  ", flush=True)
    return len(deviations) >= 6 and most <= TRACE_ERROR


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--optpipe", default="optpipe", help="the program optpipe")
    options.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    given = options.parse_args()
    torch.set_num_threads(1)
    is_right = True
    if 2 in given.ranks:
        with tempfile.TemporaryDirectory() as folder:
            is_right = names_missing_program() and check_commands(given.optpipe, pathlib.Path(folder))
    for ranks in given.ranks:
        with tempfile.TemporaryDirectory() as folder:
            is_right = check(given.optpipe, ranks, pathlib.Path(folder)) and is_right
    print("all as planned" if is_right else "something differs")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
