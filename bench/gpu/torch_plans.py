"""Runs examples/pytorch/run_plan.py on all GPUs of this machine, one rank on each, with stashes kept, offloaded or
recomputed: times and saved bytes beside those of the plan.

    python torch_plans.py --optpipe PROGRAM [--out PREFIX] [--ranks N] [--width N] [--length N] [--steps N]

The tables are PREFIX.md, and PREFIX.jsonl with an object per row. Without GPUs, --ranks says how many processes run on
CPUs. Ends with status 1 if a plan failed.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch

RUN_PLAN = pathlib.Path(__file__).resolve().parents[2] / "examples/pytorch/run_plan.py"
MICROBATCHES_PER_RANK = 4
# Each rank has two stages of a layer.
MODEL = """
import torch
from torch import nn

def module(stage):
    torch.manual_seed(stage)
    return nn.TransformerEncoderLayer({width}, max(1, {width} // 64), 4 * {width}, batch_first=True)

def inputs(step, microbatch):
    torch.manual_seed(1000 * step + microbatch)
    return torch.randn(2, {length}, {width})

def loss(output, step, microbatch):
    return output.square().mean()
"""
COLUMNS = ["stashes", "planned ms", "measured ms (best)", "ratio", "planned GB saved", "measured GB saved"]


def call(*command):
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr[-2000:]}")
    return done.stdout


def length_of(steps):
    return max(each["end"] for each in steps["operations"]) - min(each["start"] for each in steps["operations"])


def with_storage(problem, name):
    """The problem with one storage option."""
    stages = [stage | {"storage": [each for each in stage["storage"] if each["name"] == name]}
              for stage in problem["stages"]]
    return problem | {"stages": stages}


def run(program, folder, model, problem, name, steps):
    """A row of the table."""
    files = [folder / f"{name}-{each}.json" for each in ("problem", "plan", "programs")]
    files[0].write_text(json.dumps(with_storage(problem, name)))
    call(program, "plan", files[0], "--quiet", "--time-limit", "5", "--out", files[1])
    lanes = ["--messages", "per-direction", "--receives", "when-due"] if torch.cuda.is_available() else []
    call(program, "lower", *files[:2], "--out", files[2], *lanes)
    call(sys.executable, RUN_PLAN, "run", model, *files, "--steps", steps, "--out", folder / f"{name}-step.json")
    measured = [json.loads(each.read_text()) for each in sorted(folder.glob(f"{name}-step*.json"))]
    peaks = [each["device_bytes"] for each in json.loads(files[2].read_text())["programs"]]
    planned = length_of(json.loads(files[1].read_text()))
    best = min(map(length_of, measured))
    saved = max(max(each["x-saved_bytes"]) for each in measured)
    return [name, planned, best, best / planned, 1e-9 * max(peaks), 1e-9 * saved]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--optpipe", required=True)
    parser.add_argument("--out", default="torch_plans")
    parser.add_argument("--ranks", type=int, default=torch.cuda.device_count() or 2)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    devices = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU"
    title = (f"A step of run_plan.py, {options.ranks} rank(s), each with a {devices}, two layers of width {options.width} "
             "per rank")
    failed = False
    with (tempfile.TemporaryDirectory() as folder, open(f"{options.out}.md", "w") as markdown,
          open(f"{options.out}.jsonl", "w") as rows):
        def line(text):
            print(text, flush=True)
            print(text, file=markdown, flush=True)

        line(f"\n**{title}**\n\n| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
        folder = pathlib.Path(folder)
        model = folder / "model.py"
        model.write_text(MODEL.format(width=options.width, length=options.length))
        call(sys.executable, RUN_PLAN, "measure", model, "--ranks", options.ranks, "--microbatches",
             MICROBATCHES_PER_RANK * options.ranks, "--placement", "loop", "--out", folder / "measured.json")
        problem = json.loads((folder / "measured.json").read_text())
        for name in ("keep", "offload", "recompute"):
            try:
                row = run(options.optpipe, folder, model, problem, name, options.steps)
            except RuntimeError as error:
                print(error, file=sys.stderr)
                row, failed = [name, "failed"], True
            line("| " + " | ".join(f"{each:.4g}" if isinstance(each, float) else each for each in row) + " |")
            print(json.dumps({"table": title} | dict(zip(COLUMNS, row))), file=rows, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
