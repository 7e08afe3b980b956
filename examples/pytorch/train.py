"""Trains a small model with a plan of OptPipe in PyTorch's own pipeline runtime, and compares the results.

    python train.py --optpipe PROGRAM [--ranks 2 4 8] [--folder FOLDER]

For each number of ranks it writes a problem, plans it (`optpipe plan`), writes the plan for PyTorch (`optpipe
export-csv`) and starts that number of processes, which communicate through gloo on the CPU. They train for some steps
with the plan (in both formats of PyTorch's schedule files), with published schedules, and with a schedule of PyTorch.
Losses and gradients of each step are compared with those of the same model without a pipeline.

Needs torch (tested with 2.15); without it, the script prints a message and ends with status 77. Names below that begin
with an underscore are private to PyTorch: other versions may use different ones.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as processes
    from torch import nn
    from torch.distributed.pipelining import PipelineStage, schedules
except ImportError as missing:
    print(f"skipped: torch can't be imported ({missing})")
    sys.exit(77)

STEPS = 3
WIDTH = 16
SAMPLES_PER_MICROBATCH = 2
LEARNING_RATE = 0.05
# The schedules that run for each placement: the plan, and one of each family.
SCHEDULES = {
    "linear": ["plan", "gpipe", "1f1b", "zb-h1", "zb-auto", "gis-h"],
    "loop": ["plan", "interleaved", "gis"],
    "v": ["plan", "zb-v", "v-half", "v-min", "dualpipe-v"],
}
FORMATS = ["compute_only", "compute_comms"]
# Tolerance, relative to the largest gradient of a parameter. A pipeline adds in another order; a difference larger than
# rounding in double precision means a wrong result.
TOLERANCE = 1e-6


def layer(stage):
    """One stage of the model, the same in every process."""
    torch.manual_seed(stage)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)).double()


def batch(step, samples):
    generator = torch.Generator().manual_seed(1000 + step)
    draw = lambda: torch.randn(samples, WIDTH, generator=generator, dtype=torch.double)
    return draw(), draw()


def gradients(stage, module):
    return {f"stage {stage}, {name}": p.grad.clone() for name, p in module.named_parameters()}


def train_alone(stages, microbatches):
    """Losses and gradients of each step without a pipeline."""
    layers = [layer(s) for s in range(stages)]
    parameters = [p for each in layers for p in each.parameters()]
    optimizer = torch.optim.SGD(parameters, LEARNING_RATE)
    results = []
    for step in range(STEPS):
        x, target = batch(step, microbatches * SAMPLES_PER_MICROBATCH)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(nn.Sequential(*layers)(x), target)
        loss.backward()
        results.append((loss.item(), {k: g for s, each in enumerate(layers) for k, g in gradients(s, each).items()}))
        optimizer.step()
    return results


def difference(results, expected):
    """The largest relative difference of a loss or gradient of one rank."""
    worst = 0.0
    for (loss, own), (expected_loss, all_gradients) in zip(results, expected, strict=True):
        if loss is not None:
            worst = max(worst, abs(loss - expected_loss) / abs(expected_loss))
        for name, gradient in own.items():
            scale = all_gradients[name].abs().max().item()
            worst = max(worst, (gradient - all_gradients[name]).abs().max().item() / scale)
    return worst


class runs:
    """Trains with each schedule in one process."""

    def __init__(self, rank, problem, folder):
        self.rank, self.problem, self.folder = rank, problem, folder
        self.stages = len(problem["stages"])
        self.microbatches = problem["microbatches"]
        self.expected = train_alone(self.stages, self.microbatches)

    def own_stages(self, where):
        device = torch.device("cpu")
        mine = [s for s in range(self.stages) if where[s] == self.rank]
        # No example inputs: with an input that requires no gradient, the stage before would send none.
        return [PipelineStage(layer(s), s, self.stages, device) for s in mine]

    def train(self, schedule, own):
        # The runtime may reorder the given stages.
        own = sorted(own, key=lambda each: each.stage_index)
        optimizer = torch.optim.SGD([p for each in own for p in each.submod.parameters()], LEARNING_RATE)
        first = any(each.is_first for each in own)
        last = any(each.is_last for each in own)
        results = []
        for step in range(STEPS):
            x, target = batch(step, self.microbatches * SAMPLES_PER_MICROBATCH)
            optimizer.zero_grad()
            losses = []
            inputs = (x,) if first else ()
            schedule.step(*inputs, **({"target": target, "losses": losses} if last else {}))
            mean = sum(each.item() for each in losses) / self.microbatches if last else None
            results.append((mean, {k: g for each in own for k, g in gradients(each.stage_index, each.submod).items()}))
            optimizer.step()
        return difference(results, self.expected)

    def with_file(self, name, form):
        where = [each["rank"] for each in self.problem["stages"]]
        own = self.own_stages(where)
        runtime = schedules._PipelineScheduleRuntime(own, self.microbatches, nn.functional.mse_loss)
        runtime._load_csv(str(self.folder / f"{name}.{form}.csv"), format=form)
        return self.train(runtime, own)

    def with_pytorchs_own(self):
        ranks = self.problem["ranks"]
        if self.stages == ranks:
            own = self.own_stages(range(ranks))
            return self.train(schedules.Schedule1F1B(own[0], self.microbatches, nn.functional.mse_loss), own)
        where = [each["rank"] for each in self.problem["stages"]]
        own = self.own_stages(where)
        if where[ranks] == 0:  # a loop
            return self.train(schedules.ScheduleInterleaved1F1B(own, self.microbatches, nn.functional.mse_loss), own)
        return self.train(schedules.ScheduleZBVZeroBubble(own, self.microbatches, nn.functional.mse_loss), own)


def process(rank, problem, names, folder, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=problem["ranks"])
    mine = runs(rank, problem, folder)
    own = {f"{name}, {form}": mine.with_file(name, form) for name in names for form in FORMATS}
    own["PyTorch's own"] = mine.with_pytorchs_own()
    results.put(own)
    dist.barrier()
    dist.destroy_process_group()


def problem_of(ranks, placement):
    """A pipeline whose plan mixes forwards and both halves of backwards. In PyTorch the first stage's weight gradient
    does the whole backward, so its input gradient takes next to nothing."""
    stages = ranks if placement == "linear" else 2 * ranks
    costs = {"forward": 1.0, "backward_input": 1.1, "backward_weight": 0.9, "activation": 1.0}
    return {
        "format": "optpipe.problem/1",
        "name": f"{placement} on {ranks} ranks",
        "ranks": ranks,
        "microbatches": 2 * ranks,
        "p2p": 0.1,
        "memory_limit": ranks + 1.0 if placement == "linear" else 2.0 * ranks,
        "stages": [
            {"rank": min(s, stages - 1 - s) if placement == "v" else s % ranks, **costs}
            | ({"backward_input": 0.1, "backward_weight": 1.9} if s == 0 else {})
            for s in range(stages)
        ],
    }


def compare(program, ranks, placement, folder):
    problem = problem_of(ranks, placement)
    for name in SCHEDULES[placement]:
        # Published schedules get the memory that they need.
        limit = {} if name == "plan" else {"memory_limit": 4.0 * ranks * problem["microbatches"]}
        given, schedule = folder / "problem.json", folder / "schedule.json"
        given.write_text(json.dumps(problem | limit))
        method = [] if name == "plan" else ["--method", name]
        subprocess.run([program, "plan", given, "--out", schedule, "--quiet", *method], check=True)
        for form in FORMATS:
            written = folder / f"{name}.{form}.csv"
            subprocess.run([program, "export-csv", given, schedule, "--format", form, "--out", written], check=True)
    results = processes.get_context("spawn").SimpleQueue()
    processes.spawn(process, (problem, SCHEDULES[placement], folder, results), nprocs=ranks)
    of_ranks = [results.get() for _ in range(ranks)]
    worst = {name: max(each[name] for each in of_ranks) for name in of_ranks[0]}
    for name, value in worst.items():
        print(f"{problem['name']:17} {name:26} differs from the run without a pipeline by {value:.1e}", flush=True)
    return max(worst.values()) <= TOLERANCE


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--optpipe", default="optpipe", help="the program optpipe")
    options.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    options.add_argument("--placement", nargs="+", choices=list(SCHEDULES), default=list(SCHEDULES))
    given = options.parse_args()
    equal = True
    for ranks in given.ranks:
        for placement in given.placement:
            with tempfile.TemporaryDirectory() as folder:
                equal = compare(given.optpipe, ranks, placement, pathlib.Path(folder)) and equal
    print("equal" if equal else f"a difference above {TOLERANCE}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
